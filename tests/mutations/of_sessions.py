"""Mistakes in the backends whose lease is a session."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

ADVISORY = "tests/contract/test_advisory.py::TestAdvisory::"
ROW_LOCK = "tests/contract/test_row_lock.py::TestRowLock::"
ENGINE = "tests/integration/test_session_strategies.py::"
SEEN = "test_a_session_ended_between_the_last_renewal_and_the_end_is_seen_before_the_result_counts"
SESSIONS = "locks/backends/sessions.py"
REGISTRY = "locks/backends/session_registry.py"
BACKEND = "locks/backends/sessions_backend.py"


def of_both(test: str) -> tuple[str, str]:
    return ADVISORY + test, ROW_LOCK + test


OF_SESSIONS = [
    Mutation(
        "a key that differs between processes",
        "locks/backends/advisory.py",
        r"return int\.from_bytes\(digest.*?\)\n",
        "return hash(stored)\n",
        (ADVISORY + "test_the_key_is_the_same_in_every_process",),
    ),
    Mutation(
        "a key of 32 bits",
        "locks/backends/advisory.py",
        r"digest_size=8",
        "digest_size=4",
        (ADVISORY + "test_the_key_is_a_signed_64_bit_number_and_names_do_not_share_one",),
    ),
    Mutation(
        "a collision looks like a busy name",
        "locks/backends/advisory.py",
        r"if known:",
        "if known or not taken:",
        (ADVISORY + "test_a_forged_collision_is_refused_and_never_shared[True]",),
    ),
    Mutation(
        "a collision is shared",
        "locks/backends/advisory.py",
        r"if known:",
        "if known or taken:",
        (
            ADVISORY + "test_a_forged_collision_is_refused_and_never_shared[False]",
            ADVISORY + "test_a_name_is_registered_beside_its_key",
        ),
    ),
    Mutation(
        "a number is used that a crash of the server would give again",
        "locks/backends/advisory.py",
        r"pg_logical_emit_message\(true, 'aegis', ''\)",
        "pg_current_xact_id()",
        (ADVISORY + "test_a_number_that_a_crash_could_give_again_is_waited_for",),
    ),
    Mutation(
        "numbers of two clusters are compared",
        "locks/backends/advisory.py",
        r"numbering_of\(self, \*session\.cluster\)",
        "numbering_of(self)",
        ("tests/integration/test_another_store.py::test_another_cluster_at_the_same_address_counts",),
    ),
    Mutation(
        "each grant waits for the disk",
        "locks/backends/advisory.py",
        r" +AND pg_current_wal_flush_lsn\(\) < pg_current_wal_insert_lsn\(\)\n",
        "",
        (ADVISORY + "test_a_grant_writes_nothing_where_all_is_on_disk",),
    ),
    Mutation(
        "what is held on a standby is taken for the name",
        "locks/backends/advisory.py",
        r"current_setting\('transaction_read_only'\) = 'off' AND ",
        "",
        (ADVISORY + "test_a_session_that_may_only_read_says_nothing_of_who_holds",),
    ),
    Mutation(
        "a renewal is taken for the grant",
        "locks/backends/advisory.py",
        r"session\.note = note_of\(holder, since\)",
        "session.note = note_of(holder)",
        (ADVISORY + "test_who_holds_since_when_is_shown_alike_after_a_renewal",),
    ),
    Mutation(
        "a renewal forgets the number of the grant",
        SESSIONS,
        r'"app": f"\{NAMED\}\{self\.lease_id\}\{number\}"',
        '"app": f"{NAMED}{self.lease_id}"',
        (ADVISORY + "test_who_holds_since_when_is_shown_alike_after_a_renewal",),
    ),
    Mutation(
        "one session for all leases of a process",
        BACKEND,
        r"session = Session\((self\.using, lease_id, ttl, kind=self\.kind)\)",
        r"session = next(iter(registry._process.sessions), None) or Session(\1)",
        (
            ADVISORY + "test_two_threads_of_one_process_exclude_each_other",
            ADVISORY + "test_each_lease_has_a_session_of_its_own",
        ),
    ),
    Mutation(
        "an ended session goes unnoticed, as if it had been made again",
        SESSIONS,
        r"(rows\[0\]\[0\] == self\.pid:\n            return True\n).*?return False",
        r"\1        return True",
        of_both("test_a_session_that_was_ended_is_a_lost_lease_and_the_name_is_free")
        + of_both("test_keep_alive_tells_that_the_session_was_ended"),
    ),
    Mutation(
        "no answer is a lost lease",
        SESSIONS,
        r"except connection\.NoAnswer:\n            raise",
        "except connection.NoAnswer:\n            return None",
        of_both("test_a_half_open_connection_is_doubt_until_the_window_ends"),
    ),
    Mutation(
        "a session is not used again after a late answer",
        SESSIONS,
        r"            self\._finish_earlier_exchange\(\)\n",
        "",
        of_both("test_an_answer_that_comes_late_loses_nothing"),
    ),
    Mutation(
        "any number of sessions rests",
        REGISTRY,
        r"surplus = beside\[.*?\n",
        "surplus = beside[:0]\n",
        of_both("test_few_sessions_rest_and_none_for_long"),
    ),
    Mutation(
        "the result counts though the session ended before it",
        BACKEND,
        r"verifies: ClassVar\[bool\] = True",
        "verifies: ClassVar[bool] = False",
        (
            ENGINE + f"{SEEN}[advisory]",
            ENGINE + f"{SEEN}[row_lock]",
        ),
    ),
    Mutation(
        "a forked child keeps its parent's session open",
        REGISTRY,
        r"        session\.disown\(null\)",
        "        pass",
        of_both("test_kill_9_frees_the_name_though_a_child_of_the_holder_lives_on")
        + of_both("test_a_forked_child_keeps_no_resting_session_of_its_parent_open"),
    ),
    Mutation(
        "a forked child uses its parent's sessions",
        REGISTRY,
        r"    os\.close\(null\)\n    _process = _Process\(\)",
        "    os.close(null)",
        of_both("test_a_forked_child_neither_holds_nor_ends_its_parents_lease"),
    ),
    Mutation(
        "the server gives a session up before its holder does",
        SESSIONS,
        r"math\.ceil\(ttl \* 1000\)",
        "math.ceil(ttl * 500)",
        of_both("test_the_server_bears_with_silence_for_as_long_as_the_holder_trusts"),
    ),
    Mutation(
        "nobody asks whether connections are pooled",
        BACKEND,
        r"( +)refuse_pooler\(session, self\.using\)",
        r"\1pass",
        of_both("test_transaction_pooling_is_refused_with_the_remedy[own-number]"),
    ),
    Mutation(
        "the number that was announced is believed",
        "locks/pooling.py",
        r"if others == announced or .*?:\n",
        "if False:\n",
        of_both("test_transaction_pooling_is_refused_with_the_remedy[servers-number]"),
    ),
    Mutation(
        "a lock time-out is taken for a held row",
        SESSIONS,
        r', "lock_timeout": "0"',
        "",
        (ROW_LOCK + "test_a_locked_table_is_unavailable_never_none",),
    ),
    Mutation(
        "an aborted transaction is taken for a held row",
        SESSIONS,
        r"if self\._status == TransactionStatus\.INERROR:",
        "if False:",
        (ROW_LOCK + "test_an_aborted_transaction_is_a_lost_lease",),
    ),
    Mutation(
        "a leftover of one's own is taken for another holder",
        BACKEND,
        r"if grant is None and in_doubt and",
        "if False and",
        of_both("test_a_grant_nobody_heard_of_is_taken_up_by_the_same_id"),
    ),
    Mutation(
        "an advisory lock without a row in the registry is free",
        "locks/backends/advisory.py",
        r'names="\(SELECT %\(name\)s::text AS name, %\(key\)s::bigint AS key\)"\)',
        'names="aegis_locks_advisory") + "WHERE k.name = %(name)s"',
        (ADVISORY + "test_a_deleted_row_frees_no_lock",),
    ),
    Mutation(
        "a holder that cannot be named is none",
        "scheduler/reaper.py",
        r"if info\.lease_id is None:[^\n]*\n            return True",
        "if info.lease_id is None:\n            return False",
        (ENGINE + "test_the_reaper_leaves_what_is_held_by_a_session_it_cannot_name",),
    ),
    Mutation(
        "a session goes on to another lease while it is being ended",
        SESSIONS,
        r" AND \{open\} AND ",
        " AND ",
        of_both("test_a_session_that_is_being_ended_takes_no_other_lease"),
    ),
    Mutation(
        "a session is handed on with what else it holds",
        "locks/backends/advisory.py",
        r", pg_advisory_unlock_all\(\)",
        "",
        (ADVISORY + "test_a_session_at_rest_holds_nothing_whatever_was_done_on_it",),
    ),
    Mutation(
        "a row lock's session is handed on with what else it holds",
        "locks/backends/row_lock.py",
        r"; SELECT pg_advisory_unlock_all\(\) IS NOT NULL",
        "",
        (ROW_LOCK + "test_a_session_at_rest_holds_nothing_whatever_was_done_on_it",),
    ),
    Mutation(
        "a session whose patience was changed serves others",
        SESSIONS,
        r" and self\.ttl == self\.place\.ttl",
        "",
        of_both("test_another_ttl_is_another_session"),
    ),
    Mutation(
        "a late renewal speaks for the session's next lease",
        SESSIONS,
        r"            if self\.lease_id != lease_id:\n                return False\n",
        "",
        of_both("test_a_late_renewal_does_not_touch_the_next_lease"),
    ),
    Mutation(
        "a session that ended at rest is used",
        SESSIONS,
        r" or self\.connection\.has_gone\(\)",
        "",
        of_both("test_a_session_that_ended_at_rest_is_replaced_unnoticed"),
    ),
]
