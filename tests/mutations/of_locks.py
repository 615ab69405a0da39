"""Mistakes in ``locks``."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

DATABASE_CONTRACT = "tests/contract/test_database.py::TestDatabase::"
OPTIMISTIC_CONTRACT = "tests/contract/test_optimistic.py::TestOptimistic::"
REDIS_CONTRACT = "tests/contract/test_redis.py::TestRedis::"
REDLOCK_CONTRACT = "tests/contract/test_redlock.py::TestRedlock::"
TAKEOVERS = "tests/contract/test_takeovers.py::"


OF_LOCKS = [
    Mutation(
        "a bare DEL on release",
        "locks/backends/scripts.py",
        r"(RELEASE = Script\(\"\"\"\n).*?(return redis\.call\('DEL')",
        r"\1\2",
        (
            REDIS_CONTRACT + "test_stale_release_does_not_free_the_next_holder",
            REDIS_CONTRACT + "test_force_release_compares",
            REDLOCK_CONTRACT + "test_stale_release_does_not_free_the_next_holder",
        ),
        never_left_out=True,
    ),
    Mutation(
        "a release in two steps, redis",
        "locks/backends/redis.py",
        r"return bool\(self\._run\(\"release\".*?\n",
        """line, key = line_to(self.url, self.timeout), lock_key(self.prefix, name)
        value = line.exchange(["GET", key]) or b""
        return value.startswith(str(lease_id).encode()) and bool(line.exchange(["DEL", key]))
""",
        (TAKEOVERS + "test_a_release_under_way_leaves_who_came_meanwhile_alone[redis]",),
        never_left_out=True,
    ),
    Mutation(
        "a renewal in two steps, redis",
        "locks/backends/redis.py",
        r"return bool\(self\._run\(\"renew\".*?\n",
        """line, key = line_to(self.url, self.timeout), keys[0]
        value = line.exchange(["GET", key]) or b""
        return value.startswith(str(lease.lease_id).encode()) and bool(line.exchange(["PEXPIRE", key, _ms(ttl)]))
""",
        (TAKEOVERS + "test_a_renewal_under_way_prolongs_nobody_elses_lease[redis]",),
    ),
    Mutation(
        "a release in two steps, redlock",
        "locks/backends/redlock.py",
        r"answers = ask_all\(self\.nodes, scripts\.RELEASE, \[key\], \[str\(lease_id\)\]\)",
        """shown = ask_all(self.nodes, scripts.SHOW, [key], [])
        mine = [a.node for a in shown if a.value and a.value[0].startswith(str(lease_id).encode())]
        answers = [Answer(node, node.client.delete(key)) for node in mine]""",
        (TAKEOVERS + "test_a_release_under_way_leaves_who_came_meanwhile_alone[redlock]",),
    ),
    Mutation(
        "a release in two steps, rows",
        "locks/backends/rows.py",
        r"return bool\(self\._execute\(\"release\".*?\n",
        """shown, by_name = self.inspect(name), self.release_sql.partition("AND")[0] + "RETURNING true"
        mine = shown is not None and shown.lease_id == lease_id
        return mine and bool(self._execute("release", name, by_name, params))
""",
        tuple(
            contract + "test_a_release_that_waited_leaves_who_came_meanwhile_alone"
            for contract in (DATABASE_CONTRACT, OPTIMISTIC_CONTRACT)
        ),
        never_left_out=True,
    ),
    Mutation(
        "a renewal in two steps, database",
        "locks/backends/database.py",
        r"return bool\(self\._execute\(\"renew\".*?\n",
        """shown, by_name = self.inspect(lease.name), RENEW.partition("AND")[0] + "RETURNING true"
        mine = shown is not None and shown.lease_id == lease.lease_id
        return mine and bool(self._execute("renew", lease.name, by_name, params, timeout=timeout))
""",
        (DATABASE_CONTRACT + "test_a_renewal_that_waited_prolongs_nobody_elses_lease",),
    ),
    Mutation(
        "now() for clock_timestamp() in a lease",
        "locks/backends/database.py",
        r"clock_timestamp\(\)",
        "now()",
        (
            DATABASE_CONTRACT + "test_end_is_counted_from_after_the_wait_for_a_row_lock",
            DATABASE_CONTRACT + "test_renewal_that_waited_beyond_the_end_revives_nothing",
        ),
        never_left_out=True,
    ),
    Mutation(
        "statement_timestamp() for clock_timestamp() in a claim",
        "locks/backends/claim.py",
        r"clock_timestamp\(\)",
        "statement_timestamp()",
        (OPTIMISTIC_CONTRACT + "test_end_is_counted_from_after_the_wait_for_a_row_lock",),
    ),
    Mutation(
        "the task id as lease id: a redelivered task takes its duplicate for itself",
        "locks/base.py",
        r"return uuid\.uuid4\(\)",
        'return uuid.uuid5(uuid.NAMESPACE_OID, "the id of the task")',
        tuple(
            contract + test
            for contract in (DATABASE_CONTRACT, OPTIMISTIC_CONTRACT, REDIS_CONTRACT, REDLOCK_CONTRACT)
            for test in ("test_each_acquisition_has_a_fresh_random_id", "test_second_acquire_returns_none")
        ),
        never_left_out=True,
    ),
    Mutation(
        "a lease id of host and process with a counter",
        "locks/base.py",
        r"return uuid\.uuid4\(\)",
        "return uuid.UUID(int=uuid.uuid1().int, version=4)",
        (REDIS_CONTRACT + "test_each_acquisition_has_a_fresh_random_id",),
    ),
    Mutation(
        "the deadline counted from the reply",
        "locks/backends/base.py",
        r"( +)sent_at = self\.clock\(\)\n( +grant = self\._acquire\(.*?\)\n)",
        r"\2\1sent_at = self.clock()\n",
        (
            DATABASE_CONTRACT + "test_late_answer_is_no_grant_and_is_given_back",
            REDIS_CONTRACT + "test_late_answer_is_no_grant_and_is_given_back",
        ),
        never_left_out=True,
    ),
    Mutation(
        "the deadline of a quorum counted from its votes",
        "locks/backends/redlock.py",
        r"( +outcome = self\._vote\(.*?\)\n)",
        r"\1            sent_at = self.clock()\n",
        (REDLOCK_CONTRACT + "test_votes_after_the_trust_window_are_rolled_back_everywhere",),
    ),
    Mutation(
        "the deadline of a renewal counted from the reply",
        "locks/backends/base.py",
        r"self\._trusted_until\(sent_at, ttl\)\)",
        "self._trusted_until(self.clock(), ttl))",
        (REDIS_CONTRACT + "test_late_answer_to_a_renewal_is_a_lost_lease",),
    ),
    Mutation(
        "an outage that looks like contention",
        "locks/backends/redis.py",
        r"raise self\._doubt\(action, name, error\) from error",
        "return 0, ''",
        (REDIS_CONTRACT + "test_store_down_is_unavailable_never_none",),
    ),
    Mutation(
        "no row is busy",
        "locks/backends/rows.py",
        r"if not held:\n",
        "if not held:\n                return None\n",
        (DATABASE_CONTRACT + "test_a_name_without_a_row_is_seeded_never_busy",),
    ),
    Mutation(
        "an expired lease is revived if nobody took it",
        "locks/backends/database.py",
        r" AND expires_at > clock_timestamp\(\)\nRETURNING true",
        r"\nRETURNING true",
        (DATABASE_CONTRACT + "test_expired_lease_is_never_revived",),
    ),
    Mutation(
        "a number drawn for each try, and reset with the data (INCR)",
        "locks/backends/scripts.py",
        r"math\.max\(now, last \+ 1\)",
        "last + 1",
        (REDIS_CONTRACT + "test_grant_numbers_go_on_after_the_data_were_lost",),
    ),
    Mutation(
        "aliases of one quorum share the shorter quarantine",
        "locks/backends/scripts.py",
        r"quarantine <= tonumber\(sat\)",
        "tonumber(sat) > 0",
        (REDLOCK_CONTRACT + "test_an_alias_of_short_leases_does_not_end_the_quarantine_of_long_ones",),
    ),
    Mutation(
        "a restarted quorum node votes at once",
        "locks/backends/scripts.py",
        r"if left > 0 then return \{-2",
        "if false then return {-2",
        (
            REDLOCK_CONTRACT + "test_one_forgetful_node_makes_no_second_holder",
            REDLOCK_CONTRACT + "test_foreign_run_id_trips_the_quarantine",
        ),
    ),
    Mutation(
        "a majority of the replies instead of all nodes",
        "locks/backends/redlock.py",
        r"return self\.votes >= self\.quorum",
        "return self.votes > len([a for a in self.answers if a.silence is None]) // 2",
        (REDLOCK_CONTRACT + "test_minority_up_is_unavailable_and_rolled_back",),
    ),
    Mutation(
        "silent nodes are not told of the roll-back",
        "locks/backends/redlock.py",
        r"owe_release\(answer\.node, key, vote, ttl\)",
        "pass",
        (REDLOCK_CONTRACT + "test_partial_grant_is_rolled_back_on_silent_nodes_too",),
    ),
    Mutation(
        "the answer that came too late is read by the next question",
        "locks/backends/question.py",
        r"(receive\(until\)\n    except BaseException as error:\n        )wire\.close\(\)",
        r"\1line.give_back(wire, None)",
        (REDLOCK_CONTRACT + "test_an_answer_that_comes_late_is_never_read_by_a_later_question",),
    ),
    Mutation(
        "the wire of an unfinished exchange is kept",
        "locks/backends/wires.py",
        r"(        except BaseException:\n            )wire\.close\(\)",
        r"\1self.give_back(wire)",
        (REDIS_CONTRACT + "test_an_answer_that_comes_late_is_never_read_by_a_later_question",),
    ),
    Mutation(
        "nodes are asked one after the other",
        "locks/backends/nodes.py",
        r"    answers: list\[Answer\] = \[\]\n",
        "    return [node.ask(script, keys, args) for node in nodes]\n    answers: list[Answer] = []\n",
        (REDLOCK_CONTRACT + "test_all_nodes_are_asked_at_once",),
    ),
    Mutation(
        "a forked child uses its parent's wires",
        "locks/backends/clients.py",
        r"    _clients = _Clients\(\)\n\n\nos\.register",
        "\n\nos.register",
        (REDLOCK_CONTRACT + "test_a_forked_child_asks_over_wires_of_its_own",),
    ),
    Mutation(
        "one renewing thread for all stores",
        "locks/keepalive.py",
        r"(def renewer\(self, alias: str\) -> _Loop:\n)",
        r"\1        alias = 'all'\n",
        tuple(
            f"tests/unit/locks/test_keepalive.py::test_a_store_that_hangs_holds_up_no_renewal_at_another[{other}]"
            for other in ("redis", "database")
        ),
    ),
    Mutation(
        "statements are prepared behind a pooler",
        "locks/pooling.py",
        r"return using not in _refuted and seen_pooling\(.*?\) is None",
        "return True",
        (
            "tests/unit/locks/test_connection.py::test_nothing_is_prepared_behind_a_pooler[own-number]",
            "tests/unit/locks/test_connection.py::test_nothing_is_prepared_behind_a_pooler[servers-number]",
        ),
    ),
    Mutation(
        "a prepared statement that vanished is asked for for ever",
        "locks/connection.py",
        r"except _UNPREPARED as error:\n                self\._drop\(\)",
        "except _UNPREPARED as error:\n                raise",
        ("tests/unit/locks/test_connection.py::test_a_migration_under_a_prepared_statement_is_an_error_once",),
    ),
]
