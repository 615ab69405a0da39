"""Mistakes in what a schedule asks for: queue one, jitter, pauses, healing, the stored name, pruning."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

OVERLAP = "tests/integration/test_overlap.py::"
PAUSING = "tests/integration/test_pausing.py::"
HEALING = "tests/integration/test_healing.py::"
JITTER = "tests/integration/test_jitter.py::"
PRUNE = "tests/integration/test_prune.py::"

OF_THE_POLICIES = [
    Mutation(
        "the end of a run wakes nobody",
        "scheduler/statements/finish.py",
        r"WHERE o\.lock_name = ended\.lock_name AND o\.state = 'waiting'",
        "WHERE false",
        (
            OVERLAP + "test_each_schedule_of_a_shared_name_has_a_place_of_its_own",
            OVERLAP + "test_the_reaper_wakes_who_waits_for_a_process_that_died",
        ),
    ),
    Mutation(
        "a lost wake-up is never made up for",
        "scheduler/statements/dispatch.py",
        r"WHERE o\.state = 'waiting' AND NOT EXISTS \(",
        "WHERE false AND NOT EXISTS (",
        (
            OVERLAP + "test_a_run_that_ends_between_the_refusal_and_the_wait_does_not_leave_the_tick_asleep",
            OVERLAP + "test_who_waits_while_nothing_runs_is_woken_by_the_next_pass",
        ),
    ),
    Mutation(
        "who waits is woken while the run goes on",
        "scheduler/statements/dispatch.py",
        r"e\.lock_name = o\.lock_name AND e\.state = 'running'",
        "false",
        (OVERLAP + "test_the_deadline_counts_from_the_wake_up_and_no_deadline_settles_who_waits",),
    ),
    Mutation(
        "the end of a dead run wakes who waits while a fresh one runs",
        "scheduler/statements/finish.py",
        r"AND e\.state = 'running' AND e\.id <> ended\.id\)",
        "AND false)",
        (OVERLAP + "test_the_reaper_does_not_wake_who_waits_while_a_fresh_tick_runs_under_the_name",),
    ),
    Mutation(
        "the grace counts from the fire time",
        "scheduler/statements/finish.py",
        r"deadline = clock_timestamp\(\) \+ make_interval\(secs => w\.grace\)",
        "deadline = w.deadline",
        (OVERLAP + "test_the_deadline_counts_from_the_wake_up_and_no_deadline_settles_who_waits",),
    ),
    Mutation(
        "the end of a body waits for whoever holds the waiting tick",
        "scheduler/statements/finish.py",
        r"FOR UPDATE OF o SKIP LOCKED",
        "FOR UPDATE OF o",
        (OVERLAP + "test_the_end_of_a_body_does_not_wait_for_a_stranger_who_holds_the_waiting_tick",),
    ),
    Mutation(
        "a retry is dropped for a full queue",
        "scheduler/statements/refuse.py",
        r"WHEN seen\.attempt = 1 THEN 'closed'",
        "ELSE 'closed'",
        (OVERLAP + "test_a_retry_that_meets_another_run_waits_too_and_is_never_dropped_for_a_full_queue",),
    ),
    Mutation(
        "two that are refused at once: the second is an error",
        "scheduler/ledger.py",
        r"if not isinstance\(trouble\.__cause__, psycopg\.errors\.UniqueViolation\):\n            raise",
        "raise",
        (OVERLAP + "test_two_that_are_refused_at_the_same_moment_get_one_place",),
    ),
    Mutation(
        "a tick is published before its jitter is over",
        "scheduler/minting.py",
        r"and p\.publish_from <= now\)",
        ")",
        (JITTER + "test_a_tick_keeps_its_nominal_time_waits_for_its_jitter_and_does_not_hold_up_the_pass",),
    ),
    Mutation(
        "a pause that ended by itself is caught up from its beginning",
        "scheduler/minting.py",
        r"bounds\.append\(schedule\.paused_until - MOMENT\)",
        "pass",
        (
            PAUSING + "test_a_pause_with_an_end_ends_by_itself_and_only_what_came_after_its_end_is_caught_up"
            "[fire_all-100]",
        ),
    ),
    Mutation(
        "the recurrence overrules the name that was stored",
        "scheduler/misfire.py",
        r"recurrence = Named\(recurrence, named\)",
        "pass",
        (HEALING + "test_the_name_that_was_stored_fires_although_the_zones_rules_have_changed_since",),
    ),
    Mutation(
        "a message of the old strategy starts after the change",
        "scheduler/statements/start.py",
        r"\n +AND t\.lock_alias = %\(alias\)s::text",
        "",
        (HEALING + "test_now_changes_it_under_a_running_body_and_messages_on_their_way_are_refused",),
    ),
    Mutation(
        "broken rows are never looked at again",
        "scheduler/healing.py",
        r'update\(broken_reason=""\)',
        "none()",
        (
            HEALING + "test_a_row_that_was_broken_by_locks_heals_when_a_beat_starts_with_locks_mended",
            HEALING + "test_what_passed_while_a_row_was_broken_is_the_misfire_policys_business",
        ),
    ),
    Mutation(
        "pruning takes the newest tick of a schedule",
        "scheduler/pruning.py",
        r"Q\(schedule=None\) \| Q\(manual_key__isnull=False\) \| ~Q\(pk=Subquery\(newest\)\), ",
        "",
        (PRUNE + "test_the_newest_tick_of_each_schedule_stays",),
    ),
    Mutation(
        "pruning takes the tick of a running body",
        "scheduler/pruning.py",
        r", ~Exists\(inside\)",
        "",
        (PRUNE + "test_a_running_execution_stays_although_its_tick_is_closed",),
    ),
]
