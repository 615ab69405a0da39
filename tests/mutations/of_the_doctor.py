"""Mistakes in the doctor, in the checks, and in what processes say of themselves."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

EXAMINED = "tests/unit/locks/test_examination.py::"
CHECKS = "tests/unit/scheduler/test_checks.py::"
JUDGED = "tests/unit/scheduler/test_doctor.py::"
STORES = "tests/integration/test_doctor_stores.py::"
DOCTOR = "tests/integration/test_doctor.py::"
FLEET = "tests/concurrency/test_doctor_processes.py::"

OF_THE_DOCTOR = [
    Mutation(
        "what cannot be looked at is judged",
        "locks/examination/of_redis.py",
        r"if facts\.policy is None:",
        "if False:",
        (EXAMINED + "test_what_cannot_be_looked_at_is_a_warning_and_no_more",),
    ),
    Mutation(
        "a command that is denied is overlooked",
        "locks/examination/of_redis.py",
        r"if facts\.denied:",
        "if False:",
        (EXAMINED + "test_the_rights_that_are_missing_are_named_as_acl_setuser_takes_them",),
    ),
    Mutation(
        "two addresses of one server are two nodes",
        "locks/examination/quorum.py",
        r"for servers in reached\.values\(\) if len\(servers\) > 1",
        "for servers in reached.values() if False",
        (STORES + "test_two_addresses_of_one_server",),
    ),
    Mutation(
        "a node that restarted is believed to vote",
        "locks/examination/quorum.py",
        r"if run_id != node\.run_id or not",
        "if not",
        (EXAMINED + "test_a_marker_of_an_earlier_run_is_no_vote",),
    ),
    Mutation(
        "the read-only session of a lease is not seen",
        "locks/examination/postgres.py",
        r"if facts\.read_only:",
        "if False:",
        (STORES + "test_a_session_that_may_only_read",),
    ),
    Mutation(
        "a question that hangs is waited for",
        "scheduler/doctor/bounded.py",
        r"self\._thread\.join\(max\(.*?\)\)\n",
        "self._thread.join()\n",
        (JUDGED + "test_a_question_that_hangs_is_bounded_and_hides_no_other",),
    ),
    Mutation(
        "without the database the doctor fails like any other time",
        "scheduler/doctor/report.py",
        r"return EX_UNAVAILABLE",
        "return 1",
        (JUDGED + "test_the_exit_status_follows_the_worst_finding",),
    ),
    Mutation(
        "a process is alive for ever",
        "scheduler/doctor/fleet.py",
        r"if one\.age <= bound\)",
        "if one.age <= DAY)",
        (DOCTOR + "test_a_beat_that_fell_silent_and_one_that_said_good_bye",),
    ),
    Mutation(
        "the visibility time-out is read where the transport does not look",
        "scheduler/visibility.py",
        r"options\.get\(KEY, default\)",
        "options.get(KEY, options.get(KEY.upper(), default))",
        (STORES + "test_the_time_out_is_read_as_the_transport_reads_it[options2]",),
    ),
    Mutation(
        "checks and imports of tasks call each other without an end",
        "scheduler/registry.py",
        r" and not _import\.running",
        "",
        (CHECKS + "test_celery_may_run_the_checks_while_it_imports_the_tasks",),
    ),
    Mutation(
        "a broadcast queue is told by the name that only its own process knows",
        "scheduler/celery_signals.py",
        r"queue\.alias or queue\.name",
        "queue.name",
        (FLEET + "test_a_healthy_fleet_exits_0_and_a_stopped_beat_is_missed",),
    ),
    Mutation(
        "an older process cannot show itself after the migration",
        "scheduler/migrations/0005_presence.py",
        r'db_default=""(, help_text="Of Aegis)',
        r'default=""\1',
        (DOCTOR + "test_a_process_of_an_earlier_version_says_nothing_of_itself_and_is_seen",),
    ),
]
