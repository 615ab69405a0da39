"""Mistakes in how exclusive tasks meet Celery's own ways."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MAIN_THREAD = "scheduler/loss/main_thread.py"
TASK = "scheduler/task.py"
PUBLISHER = "scheduler/publisher.py"
IN_PLACE = "tests/integration/test_celery_in_place.py::"


def soft(place: str) -> list[str]:
    return [
        f"{IN_PLACE}test_the_soft_limit_reaches_the_body_or_nobody[{place}-{how}]" for how in ("check", "interrupt")
    ]


OF_CELERY = [
    Mutation(
        "Celery's signals strike wherever the run is",
        MAIN_THREAD,
        r"if MainThread\.shut and not insists:",
        "if False:",
        (
            *soft("after-body"),
            *soft("before-release"),
            IN_PLACE + "test_a_process_that_has_to_end_first_stores_the_end_of_its_body",
        ),
    ),
    Mutation(
        "a soft limit that came before the body is forgotten",
        MAIN_THREAD,
        r"if MainThread\.inside:\n            _pass_on\(SOFT_LIMIT\)",
        "if False:\n            _pass_on(SOFT_LIMIT)",
        (
            *soft("after-acquire"),
            *soft("after-start"),
            IN_PLACE + "test_the_soft_limit_waits_for_the_answer_of_a_guarded_commit",
        ),
    ),
    Mutation(
        "a process that is told twice to end goes on",
        MAIN_THREAD,
        r"insists = .*?\n",
        "insists = False\n",
        (IN_PLACE + "test_a_second_request_to_end_is_not_put_off",),
    ),
    Mutation(
        "a body that is cut short has failed for good",
        "scheduler/ledger.py",
        r' or facts\.get\("cut_short"\)',
        "",
        (IN_PLACE + "test_a_body_that_is_cut_short_spends_its_attempt[2]",),
    ),
    Mutation(
        "a body that ends its own process is tried again",
        "scheduler/body.py",
        r"cut = told_to_end\(\) or isinstance\(failure, [^)]*\)",
        "cut = isinstance(failure, SystemExit)",
        (IN_PLACE + "test_a_body_that_ends_itself_has_failed_and_is_not_tried_again",),
    ),
    Mutation(
        "autoretry_for tries a lost lease again",
        "scheduler/body.py",
        r"if isinstance\(retry\.exc, LeaseLost \| StaleToken\):",
        "if False:",
        (IN_PLACE + "test_a_lost_lease_is_no_failure_that_autoretry_for_may_try_again",),
    ),
    Mutation(
        "what was revoked with terminate is tried again",
        "scheduler/celery_signals.py",
        r"dispatch\.TERMINATED if terminated else dispatch\.REVOKE",
        "dispatch.REVOKE",
        (
            IN_PLACE + "test_terminated_is_failed_whoever_stores_it_first[True]",
            IN_PLACE + "test_terminated_is_failed_whoever_stores_it_first[False]",
        ),
    ),
    Mutation(
        "a call that was answered runs later",
        TASK,
        r"answered = outcome\.execution\.closed or manual\.forgo\([^)]*\)",
        "answered = True",
        (IN_PLACE + "test_a_refused_part_is_answered_once_and_never_runs",),
    ),
    Mutation(
        "a chord waits for a part that was refused",
        TASK,
        r"Refused\.SKIP if is_part_of_canvas\(self\.request\) else Refused\.IGNORE",
        "Refused.IGNORE",
        (
            IN_PLACE + "test_a_refused_part_is_answered_once_and_never_runs",
            IN_PLACE + "test_a_copy_of_a_part_is_answered_only_where_the_first_came_to_nothing",
        ),
    ),
    Mutation(
        "the copy that is refused answers for the one that runs",
        TASK,
        r"return Refused\.FAIL if manual\.ended_unanswered\(delivery\) else Refused\.IGNORE",
        "return Refused.FAIL",
        (IN_PLACE + "test_a_copy_of_a_part_is_answered_only_where_the_first_came_to_nothing",),
    ),
    Mutation(
        "a part whose start is in doubt fails and may succeed later",
        TASK,
        r"if entered or \(awaited and manual\.forgo\(delivery, ExecutionState\.BLOCKED, reason\)\):",
        "if True:",
        ("tests/integration/test_unanswered_starts.py::test_a_part_that_may_have_been_begun_is_not_answered",),
    ),
    Mutation(
        "the tick of a schedule is answered",
        TASK,
        r"if task_id_of\(delivery\.manual_key\) is None:",
        "if False:",
        (
            IN_PLACE + "test_the_tick_of_a_schedule_is_never_answered[skip]",
            IN_PLACE + "test_the_tick_of_a_schedule_is_never_answered[fail]",
        ),
    ),
    Mutation(
        "the next attempt of a call forgets its chain",
        PUBLISHER,
        r", \*\*tick\.call_options\}",
        "}",
        (IN_PLACE + "test_the_next_attempt_of_a_call_repeats_its_message",),
    ),
    Mutation(
        "the next attempt of a call is barred by what expired of the one before",
        PUBLISHER,
        "expires=None if call else tick.deadline",
        "expires=tick.deadline",
        (IN_PLACE + "test_the_next_attempt_of_a_call_repeats_its_message",),
    ),
    Mutation(
        "the next attempt of a call has an id of its own",
        PUBLISHER,
        r"call or task_id_of",
        "task_id_of",
        (IN_PLACE + "test_the_next_attempt_of_a_call_repeats_its_message",),
    ),
]
