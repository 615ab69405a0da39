"""Mistakes in ``scheduler``."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

START = "scheduler/statements/start.py"
FINISH = "scheduler/statements/finish.py"
REFUSE = "scheduler/statements/refuse.py"
DISPATCH = "scheduler/statements/dispatch.py"
RUNNER = "tests/integration/test_runner.py::"
TICKER = "tests/integration/test_ticker.py::"
ATTACK = "tests/integration/test_attack_statements.py::"
WAITING = "tests/integration/test_waiting_starts.py::"
STOPPING = "tests/integration/test_stopping.py::"
ORDINARY = "tests/integration/test_ordinary_rows_once.py::"
DECLARED = "tests/integration/test_declared_strategy.py::"
REPLACED = "tests/integration/test_replaced_strategy.py::"
UNDER_A_BEAT = "tests/integration/test_edits_under_a_beat.py::"

OF_THE_ENGINE = [
    Mutation(
        "start does not ask for the attempt",
        START,
        r"t\.attempt = %\(attempt\)s::int AND t\.state IN",
        "t.state IN",
        (RUNNER + "test_a_retry_waits_in_the_tick_and_a_late_copy_of_the_first_attempt_does_not_take_it",),
    ),
    Mutation(
        "start wants the tick to be marked dispatched",
        START,
        r"(attempt\)s::int AND t\.state IN \()'planned', ",
        r"\1",
        (RUNNER + "test_start_before_the_ticker_has_marked_the_tick_dispatched",),
    ),
    Mutation(
        "start does not ask for the deadline",
        START,
        r" AND NOT gate\.overdue",
        "",
        (RUNNER + "test_a_message_that_comes_after_the_deadline_starts_nothing[True]",),
    ),
    Mutation(
        "start does not ask for the order of grants",
        START,
        r"gate\.open AND door\.in_order",
        "gate.open",
        (
            RUNNER + "test_a_start_out_of_grant_order_is_refused[database]",
            RUNNER + "test_a_start_out_of_grant_order_is_refused[redis]",
        ),
    ),
    Mutation(
        "start does not ask whether the schedule is switched off",
        START,
        r"gate\.open AND door",
        "door",
        (
            RUNNER + "test_a_disabled_schedule_starts_nothing_any_more",
            RUNNER + "test_a_deleted_schedule_keeps_its_audit_and_starts_nothing",
        ),
    ),
    Mutation(
        "any refusal closes the tick",
        REFUSE,
        r"state = 'running' AND tick_id <> %\(tick\)s::bigint",
        "true",
        (RUNNER + "test_a_late_copy_of_tick_n_does_not_cost_tick_n_plus_1",),
    ),
    Mutation(
        "finish overwrites a terminal state",
        FINISH,
        r"AND state = 'running' AND lease_id = %\(lease\)s::uuid",
        "AND lease_id = %(lease)s::uuid",
        (TICKER + "test_a_body_that_comes_back_after_it_was_abandoned_is_recorded_beside_the_state",),
    ),
    Mutation(
        "the lease is released before the end is written",
        "scheduler/runner.py",
        r'failpoint\("after-body"\)',
        "_release_quietly(held)",
        (ATTACK + "test_the_lease_is_still_held_while_the_end_is_written",),
    ),
    Mutation(
        "the trust window is not looked at before the body",
        "scheduler/runner.py",
        r"if _is_over\(kept\.lease\):\n                return",
        "if False:\n                return",
        (RUNNER + "test_a_lease_that_ends_before_the_body_gives_the_attempt_back",),
    ),
    Mutation(
        "the trust window is not looked at before the start",
        "scheduler/runner.py",
        r"if _is_over\(held\.lease\):",
        "if False:",
        (ATTACK + "test_a_lease_that_ends_before_the_start_is_sent_claims_nothing",),
    ),
    Mutation(
        "a body that outlived its lease is executed",
        "scheduler/runner.py",
        r"if kept\.lost or _is_over\(kept\.lease\):",
        "if False:",
        (RUNNER + "test_a_body_that_never_asks_and_loses_its_lease_is_lost",),
    ),
    Mutation(
        "an overtaken claim is executed",
        "scheduler/runner.py",
        r"if not still_ours:",
        "if False:",
        (RUNNER + "test_optimistic_detects_a_body_that_outlived_its_window_and_was_overtaken",),
    ),
    Mutation(
        "the reaper does not ask the store",
        "scheduler/reaper.py",
        r"if held or \(held is None and waits\):",
        "if False:",
        (
            TICKER + "test_a_silent_execution_that_still_holds_its_lease_is_left_alone[database]",
            TICKER + "test_a_silent_execution_that_still_holds_its_lease_is_left_alone[redis]",
        ),
    ),
    Mutation(
        "the numbers of two stores are compared",
        "locks/backends/numbering.py",
        r", \*backend\.place\(\)",
        "",
        (
            "tests/integration/test_another_store.py::test_the_server_counts_and_its_secrets_do_not",
            "tests/integration/test_another_store.py::test_another_database_counts",
        ),
    ),
    Mutation(
        "a store that does not answer holds nothing",
        "scheduler/reaper.py",
        r"if held or \(held is None and waits\):",
        "if held:",
        (REPLACED + "test_a_strategy_that_nobody_replaced_is_waited_for",),
    ),
    Mutation(
        "a run whose strategy was replaced is waited for without end",
        "scheduler/reaper.py",
        r"\(held is None and waits\)",
        "held is None",
        (REPLACED + "test_a_dead_run_is_abandoned_after_its_ttl_and_the_grace[leave_locks]",),
    ),
    Mutation(
        "what is caught up is let loose at once",
        DISPATCH,
        r"NOT \(s\.misfire = 'fire_all'",
        "NOT (false",
        (TICKER + "test_what_is_caught_up_has_one_tick_open_at_a_time_and_polls_nobody_meanwhile",),
    ),
    Mutation(
        "a beat stores the whole row as it has read it",
        "scheduler/minting.py",
        r"(dispatch\.DUE if only is None else dispatch\.DUE_ONE)(, given.*?)"
        r"Schedule\.objects\.filter\(pk=schedule\.pk\)\.update\(next_fire_at=[^\n]*",
        r"""(\1).replace("FOR NO KEY UPDATE SKIP LOCKED", "")\2schedule.next_fire_at = next_fire_at
    schedule.exhausted = next_fire_at is None
    schedule.save()""",
        (UNDER_A_BEAT + "test_a_beat_overwrites_no_edit_that_came_while_it_moved_the_schedule_on",),
        never_left_out=True,
    ),
    Mutation(
        "a deletion does not hold what it deletes",
        "scheduler/deleting.py",
        r"    pre_delete\.connect\(.*?\n",
        "    pass\n",
        (UNDER_A_BEAT + "test_a_beat_survives_a_deletion_that_came_while_it_moved_the_schedule_on",),
    ),
    Mutation(
        "a start says of a tick what it read before it waited",
        START,
        r"WHERE claim\.id IS NOT NULL\n.*?\n",
        "",
        (WAITING + "test_a_start_whose_tick_is_closed_while_it_waits_is_late_and_no_duplicate",),
    ),
    Mutation(
        "marking takes back a start",
        DISPATCH,
        r"WHERE id = ANY\(%\(ids\)s\) AND state = 'planned'",
        "WHERE id = ANY(%(ids)s)",
        (ATTACK + "test_marking_as_dispatched_does_not_take_back_a_start",),
    ),
    Mutation(
        "a tick is published again without being moved forward",
        DISPATCH,
        r"dispatch_at = clock_timestamp\(\)\n        \+ least\(.*?interval '5 minutes'\)",
        "dispatch_at = dispatch_at",
        (ATTACK + "test_each_copy_of_a_tick_waits_twice_as_long_and_none_is_sent_after_the_deadline",),
    ),
    Mutation(
        "a strategy is changed under a running body",
        DISPATCH,
        r"  AND NOT EXISTS \(SELECT FROM aegis_scheduler_execution e WHERE e\.lock_name = n\.name[^)]*\)",
        "",
        (TICKER + "test_a_change_of_strategy_waits_for_a_running_body_whose_tick_is_closed",),
    ),
    Mutation(
        "a strategy is changed while ticks are open",
        DISPATCH,
        r"  AND NOT EXISTS \(SELECT FROM aegis_scheduler_tick t\n.*?'started'\)\)",
        "",
        (TICKER + "test_a_change_of_strategy_waits_until_nothing_under_the_name_is_open",),
    ),
    Mutation(
        "a beat whose stop gets lost goes on",
        "scheduler/ticker.py",
        r"        if self\._stopped:\n            raise SystemExit\n",
        "",
        (STOPPING + "test_a_stop_that_gets_lost_is_obeyed_by_the_next_step[catalog]",),
    ),
    Mutation(
        "a beat says good-bye in the middle of a statement",
        "scheduler/beat.py",
        r"        if self\._is_at_work:\n            return\n",
        "",
        (STOPPING + "test_a_signal_in_the_middle_of_a_pass_leaves_the_good_bye_to_the_end_of_the_loop",),
    ),
    Mutation(
        "a good-bye is cut short by another signal",
        "scheduler/beat.py",
        r"with deaf\(\), self\._at_work\(\):",
        "with self._at_work():",
        (STOPPING + "test_a_good_bye_is_not_cut_short_by_another_signal",),
    ),
    Mutation(
        "a signal takes the last good-bye away",
        "scheduler/beat.py",
        r"with deaf\(\), self\._at_work\(\):",
        "with self._at_work(), deaf():",
        (STOPPING + "test_a_signal_just_before_the_last_good_bye_does_not_take_it_away",),
    ),
    Mutation(
        "an ordinary row that was fired since it was read is fired",
        "scheduler/ordinary_entry.py",
        r", last_run_at=self\._stored\)",
        ")",
        (ORDINARY + "test_a_beat_that_lost_its_lease_unawares_does_not_fire_what_the_other_has_fired",),
    ),
    Mutation(
        "an ordinary row keeps its last run from before it fired",
        "scheduler/ordinary_entry.py",
        r"row\.last_run_at = self\.last_run_at = self\._stored = now",
        "row.last_run_at = self._stored = now",
        (ORDINARY + "test_a_beat_that_takes_over_after_an_edit_fires_what_is_overdue_once",),
    ),
    Mutation(
        "an ordinary row is sent before its run is stored",
        "scheduler/beat.py",
        r"        if not entry\.take\(\):.*?(        super\(\)\.apply_entry.*?\n)",
        r"\1        entry.take()\n",
        (
            ORDINARY + "test_a_row_that_comes_due_while_the_database_is_away_fires_once[out_of_reach]",
            ORDINARY + "test_a_beat_that_lost_its_lease_unawares_does_not_fire_what_the_other_has_fired",
        ),
    ),
    Mutation(
        "an ordinary row that could not be stored is forgotten",
        "scheduler/beat.py",
        r"            self\._read_rows_anew\(\)  # the row [^\n]*not stored\n",
        "",
        (ORDINARY + "test_a_row_that_comes_due_while_the_database_is_away_fires_once[out_of_reach]",),
    ),
    Mutation(
        "a task overrules the schedule that is being declared",
        "scheduler/switching.py",
        r" and not row\.schedules\.exists\(\)",
        "",
        (DECLARED + "test_a_schedule_that_is_stored_after_the_first_look_is_not_overruled",),
    ),
    Mutation(
        "a call that meets a switch lives by the old strategy's ttl",
        "scheduler/manual.py",
        r"FROM guard WHERE guard\.alias_in_force = %\(in_force\)s::text",
        "FROM guard",
        (DECLARED + "test_a_call_that_meets_a_switch_lives_by_the_new_strategys_ttl",),
    ),
]
