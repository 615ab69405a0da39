"""Mistakes in what happens when a lease is lost, and in the fence."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

FENCING = "locks/fencing.py"
KEEPALIVE = "locks/keepalive.py"
INTERRUPT = "scheduler/loss/interrupt.py"
MAIN_THREAD = "scheduler/loss/main_thread.py"
KILL = "scheduler/loss/kill.py"
GUARD = "scheduler/loss/guard.py"
TOKENS = "locks/migrations/0003_tokens_and_guards.py"
OF_KEEPALIVE = "tests/unit/locks/test_keepalive.py::"
OF_FENCING = "tests/unit/locks/test_fencing.py::"
OF_GUARD = "tests/integration/test_commit_guard.py::"
OF_LOST = "tests/integration/test_on_lost.py::"
OF_TOKENS = "tests/integration/test_tokens.py::"
OF_TABLE = "tests/unit/locks/test_guard_table.py::"
WAITING = "tests/integration/test_waiting_starts.py::"
ELSEWHERE = "tests/integration/test_guard_around_users_code.py::"

OF_LOSS = [
    Mutation(
        "the lease id is not proven",
        FENCING,
        r" AND lease_id = %\(lease_id\)s FOR KEY SHARE",
        " AND %(lease_id)s IS NOT NULL FOR KEY SHARE",
        (
            OF_GUARD + "test_the_lease_id_is_proven_as_well",
            OF_FENCING + "test_only_the_latest_token_with_its_lease_is_proven",
        ),
    ),
    Mutation(
        "the proof locks nothing",
        FENCING,
        r"(AND lease_id = %\(lease_id\)s) FOR KEY SHARE",
        r"\1",
        (
            OF_GUARD + "test_a_later_start_waits_for_an_open_guard[database]",
            OF_GUARD + "test_a_later_start_waits_for_an_open_guard[redis]",
            OF_FENCING + "test_a_later_start_waits_for_the_proven_transaction",
        ),
    ),
    Mutation(
        "the token is proven after the effects",
        FENCING,
        r"(        prove\(proof\.name.*?\)\n)(        yield\n)",
        r"\2\1",
        (OF_GUARD + "test_a_former_holder_writes_nothing[database]",),
    ),
    Mutation(
        "a session may sit idle in a guard for ever",
        FENCING,
        r"max\(1, int\(proof\.ttl \* 900\)\)",
        "0",
        (
            OF_GUARD + "test_a_session_that_sits_idle_in_a_guard_is_bounded_by_the_ttl",
            OF_GUARD + "test_a_holder_that_sits_idle_in_a_guard_does_not_keep_its_successor_waiting",
        ),
    ),
    Mutation(
        "the shield is off",
        MAIN_THREAD,
        r"before, MainThread\.shut = MainThread\.shut, True",
        "before = MainThread.shut",
        (OF_GUARD + "test_a_loss_during_commit_is_told_after_it_and_not_as_undone[False]",),
    ),
    Mutation(
        "a loss that came under the shield is forgotten",
        MAIN_THREAD,
        r"        if not before:\n            _raise_what_waits\(\)\n",
        "",
        (OF_GUARD + "test_a_loss_during_commit_is_told_after_it_and_not_as_undone[False]",),
    ),
    Mutation(
        "the main thread is woken once",
        INTERRUPT,
        r"while self\._inside and not self\.raised",
        "if self._inside and not self.raised",
        (OF_LOST + "test_a_signal_that_woke_nobody_is_sent_again",),
    ),
    Mutation(
        "an interrupted query goes on at the server",
        INTERRUPT,
        r"        _cancel_queries\(\)\n",
        "",
        (OF_LOST + "test_an_interrupted_query_ends_at_the_server_too",),
    ),
    Mutation(
        "the kill timer counts from the answer",
        KILL,
        r"self\._timer\.set\((?:kept\.)?lease\.trusted_until\)",
        "self._timer.set(time.clock_gettime(time.CLOCK_BOOTTIME) + 600)",
        (
            OF_LOST + "test_kill_ends_a_process_that_holds_the_gil",
            OF_LOST + "test_kill_ends_a_process_while_it_is_frozen",
            OF_LOST + "test_a_renewal_moves_the_deadline_to_the_end_of_its_trust_window",
        ),
    ),
    Mutation(
        "the kill timer stays when the body is out",
        KILL,
        r"        finally:\n            self\.stand_down\(\)",
        "        finally:\n            pass",
        (OF_LOST + "test_nothing_kills_a_process_whose_body_is_out",),
    ),
    Mutation(
        "a renewal does not move the kill timer",
        KILL,
        r"self\._timer\.set\(lease\.trusted_until\)",
        "pass",
        (
            OF_LOST + "test_a_renewal_keeps_a_process_alive",
            OF_LOST + "test_a_renewal_moves_the_deadline_to_the_end_of_its_trust_window",
        ),
    ),
    Mutation(
        "the end in a guard is not counted",
        GUARD,
        r"if not recorded:",
        "if False:",
        (OF_GUARD + "test_a_run_that_somebody_else_has_ended_commits_nothing",),
    ),
    Mutation(
        "the runner finishes what its guard has finished",
        "scheduler/runner.py",
        r"if context\.guards\.finished:",
        "if False:",
        (
            OF_GUARD + "test_what_a_body_does_after_its_end_was_recorded_changes_nothing",
            OF_GUARD + "test_a_loss_during_commit_is_told_after_it_and_not_as_undone[True]",
        ),
    ),
    Mutation(
        "a commit without an answer counts as failed",
        "scheduler/runner.py",
        r"if not recorded and context\.guards\.in_doubt and ",
        "if False and ",
        (OF_GUARD + "test_a_commit_whose_answer_was_lost_is_executed",),
    ),
    Mutation(
        "kill is done as check where it cannot be done",
        "scheduler/runner.py",
        r"if refusal := cannot\(on_lost, backend\):",
        'if refusal := "":',
        (OF_LOST + "test_kill_is_refused_where_no_clock_ends_the_lease[optimistic]",),
    ),
    Mutation(
        "another database takes any lease with the right number",
        FENCING,
        r" OR \(f\.token = excluded\.token AND f\.lease_id = excluded\.lease_id\)",
        " OR f.token = excluded.token",
        (ELSEWHERE + "test_the_same_number_of_another_lease_is_refused_there",),
    ),
    Mutation(
        "a promoted standby goes on counting where it was",
        TOKENS,
        r"bigint - 1\) << 40",
        "bigint - 1) * 0",
        (OF_TOKENS + "test_numbers_and_tokens_across_a_failover_that_lost_the_last_ones",),
    ),
    Mutation(
        "the token of a run is the row's own counter",
        "scheduler/statements/start.py",
        r"greatest\(f\.token \+ 1, aegis_locks_next_token\(\)\)",
        "f.token + 1",
        (OF_TOKENS + "test_tokens_of_runs_across_deletion_of_the_fence_row",),
    ),
    Mutation(
        "a guarded table believes the settings",
        TOKENS,
        r"IF NOT FOUND THEN",
        "IF false THEN",
        (
            OF_TABLE + "test_a_stale_token_is_refused_by_the_table_itself",
            OF_TABLE + "test_the_tables_refusal_is_raised_as_a_stale_token",
        ),
    ),
    Mutation(
        "a lost lease stays due for renewal",
        KEEPALIVE,
        r"self\.next_renewal = math\.inf",
        "pass",
        (OF_KEEPALIVE + "test_a_lost_lease_keeps_no_thread_busy",),
    ),
    Mutation(
        "a lease that is kept late is renewed as if it were fresh",
        KEEPALIVE,
        r"return min\(lease\.trusted_until - .*?\n",
        "return now + lease.ttl / 3\n",
        (WAITING + "test_a_start_that_comes_in_late_renews_its_lease_before_it_ends",),
    ),
    Mutation(
        "whoever is told of a loss is told by the thread that found out",
        KEEPALIVE,
        r"        try:\n            threading\.Thread\(target=self\._tell_and_leave.*?(self\._tell\(error\)\n)",
        r"        \1",
        tuple(
            f"{OF_KEEPALIVE}test_whoever_is_told_of_a_loss_may_take_its_time[{who}-{how}]"
            for who in ("observer", "on_lost")
            for how in ("renewing", "watching")
        ),
    ),
    Mutation(
        "a thread that could not be started is believed in",
        KEEPALIVE,
        r"            self\.thread = running\(self\.thread, self\._run, self\.name\)\n",
        "            if self.thread is None:\n"
        "                self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)\n"
        "                self.thread.start()\n",
        tuple(
            f"{OF_KEEPALIVE}test_a_thread_that_could_not_be_started_is_started_for_the_next_lease[{thread}]"
            for thread in ("aegis-renew-redis", "aegis-watch")
        ),
    ),
    Mutation(
        "observers of a loss come before its holder",
        KEEPALIVE,
        r"(        if self\._on_lost is not None:\n.*?)(        logger\.warning.*?\n        \)\n)",
        r"\2\1",
        (
            OF_KEEPALIVE + "test_whoever_is_told_of_a_loss_may_take_its_time[observer-renewing]",
            OF_KEEPALIVE + "test_whoever_is_told_of_a_loss_may_take_its_time[observer-watching]",
        ),
    ),
    Mutation(
        "anybody may say that it is maintenance",
        TOKENS,
        r"AND pg_has_role\(.*?'USAGE'\)",
        "AND true",
        (OF_TABLE + "test_the_setting_is_worth_nothing_to_others",),
    ),
]
