"""``aegis schedules adopt``: each kind of row of django-celery-beat, what is said of it, and the change-over."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from celery import current_app
from django.core.management import CommandError, call_command
from django.db import transaction
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    PeriodicTasks,
    SolarSchedule,
)

from locks.connection import execute
from scheduler.beat import CatalogScheduler
from scheduler.minting import mint
from scheduler.models import Schedule, ScheduleChange, Tick
from scheduler.pausing import pause
from tests.integration.test_waiting_starts import in_the_background
from tests.support import wait_until
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

TASK = "aegis_site.demo.tasks.send_digest"
WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
AND query LIKE 'UPDATE %%django_celery_beat_periodictask%%'
"""
FAR = datetime(2099, 1, 31, 6, tzinfo=UTC)


def row(name: str = "digest", **fields: Any) -> PeriodicTask:
    """An ordinary row, of every hour unless the fields say otherwise."""
    if not {"interval", "crontab", "solar", "clocked"}.intersection(fields):
        fields["interval"] = every(1, "hours")
    return PeriodicTask.objects.create(**{"name": name, "task": TASK, **fields})


def every(number: int, period: str) -> IntervalSchedule:
    return IntervalSchedule.objects.get_or_create(every=number, period=period)[0]


def crontab(text: str, zone: str = "UTC") -> CrontabSchedule:
    minute, hour, day_of_month, month_of_year, day_of_week = text.split(" ")
    return CrontabSchedule.objects.create(
        minute=minute, hour=hour, day_of_month=day_of_month, month_of_year=month_of_year, day_of_week=day_of_week,
        timezone=zone,
    )  # fmt: skip


def clocked(at: datetime) -> ClockedSchedule:
    return ClockedSchedule.objects.create(clocked_time=at)


def adopt(*arguments: str) -> tuple[int, str]:
    """The exit status, and what was said."""
    out = StringIO()
    try:
        call_command("aegis", "schedules", "adopt", *arguments, "--by", "ada", stdout=out)
    except CommandError as ended:
        return ended.returncode, out.getvalue() + str(ended)
    return 0, out.getvalue()


def test_it_only_says_what_it_would_do_unless_it_is_told_to() -> None:
    row(crontab=crontab("30 2 * * *", "Europe/Berlin"), expire_seconds=600)
    status, said = adopt()
    assert (status, len(said.splitlines())) == (0, 1), said
    assert said.startswith("digest: would create, disabled: ") and f"lock name {TASK}" in said
    assert "Europe/Berlin" in said and "next run 20" in said
    assert not Schedule.objects.exists() and not ScheduleChange.objects.exists()


def test_a_row_becomes_a_disabled_schedule_once() -> None:
    row(
        args="[1.5]", queue="slow", priority=3, description="Ask Ada.",
        crontab=crontab("30 2 * * *", "Europe/Berlin"), start_time=FAR - timedelta(days=99), expires=FAR,
    )  # fmt: skip
    status, said = adopt("--write")
    assert status == 0 and "digest: created, disabled: " in said
    assert "! its messages never expire; here what nobody began within 60 s is missed" in said
    stored = Schedule.objects.get()
    assert (stored.name, stored.task, stored.enabled, stored.notes) == ("digest", TASK, False, "Ask Ada.")
    assert (stored.cron_expression, stored.time_zone) == ("30 2 * * *", "Europe/Berlin")
    assert (stored.args, stored.kwargs, stored.queue, stored.priority) == ([1.5], {}, "slow", 3)
    assert (stored.start_at, stored.end_at) == (FAR - timedelta(days=99), FAR)
    assert (stored.lock_id, stored.lock.alias_wanted) == (TASK, "database")
    assert ScheduleChange.objects.values_list("who", "reason").get() == ("ada", "adopted from django-celery-beat")
    assert adopt("--write") == (0, "digest: exists, disabled\n")
    assert Schedule.objects.count() == ScheduleChange.objects.count() == 1
    assert PeriodicTask.objects.get().enabled


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("*/15 8-18 * * mon-fri", "*/15 8-18 * * mon-fri"),
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *"),  # Celery's ranges go round
        ("0 0 1-31 * 0-6", "0 0 * * *"),  # cron would take them for restrictions
        ("5,35 */6 */2 jan,jul *", "5,35 */6 */2 jan,jul *"),
        ("0 0 * * fri-mon", "0 0 * * 0,1,5,6"),
    ],
)
def test_a_crontab_is_written_as_cron_reads_it(text: str, expression: str) -> None:
    row(crontab=crontab(text), expire_seconds=60)
    status, said = adopt("--write")
    assert (status, len(said.splitlines())) == (0, 1), said
    assert Schedule.objects.get().cron_expression == expression


@pytest.mark.parametrize(
    ("fields", "said", "stored"),
    [
        (
            lambda: {"crontab": crontab("0 0 13 * fri")},
            "! day of month 13 AND day of week fri in Celery is OR in cron: it fires on more days",
            {"cron_expression": "0 0 13 * fri"},
        ),
        (
            lambda: {"interval": every(10, "minutes")},
            "! its interval is counted from 1970-01-01 00:00 UTC (anchor), not from its last run",
            {"every_seconds": 600},
        ),
        (lambda: {"interval": every(3_000_000, "microseconds")}, "created", {"every_seconds": 3}),
        (lambda: {"clocked": clocked(FAR), "one_off": True}, "created", {"once_at": FAR}),
        (
            lambda: {"crontab": crontab("0 6 31 1 *"), "one_off": True, "start_time": FAR - timedelta(days=9)},
            "! it is a one-off: once, at 2099-01-31 06:00:00 UTC",
            {"once_at": FAR, "cron_expression": ""},
        ),
        (lambda: {"expire_seconds": 600}, "created", {"misfire_grace": 600.0}),
        (lambda: {"enabled": False}, "! the row is disabled", {"enabled": False}),
    ],
)  # fmt: skip
def test_what_then_means_something_else_is_said(fields: Any, said: str, stored: dict[str, Any]) -> None:
    row(**fields())
    status, told = adopt("--write")
    assert status == 0 and said in told
    assert Schedule.objects.values(*stored).get() == stored


def test_a_row_that_the_settings_write_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(current_app.conf.beat_schedule, "digest", {"task": TASK, "schedule": 60})
    row()
    assert "! an entry of CELERY_BEAT_SCHEDULE writes the row at each start" in adopt()[1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (lambda: {"solar": SolarSchedule.objects.create(event="sunset", latitude=1, longitude=1)}, "follows the sun"),
        (lambda: {"exchange": "e", "routing_key": "r"}, "has exchange, routing_key, which a schedule has not"),
        (lambda: {"headers": '{"a": 1}'}, "has headers, which"),
        (lambda: {"interval": every(500_000, "microseconds")}, "interval is 0.5 s"),
        (lambda: {"clocked": clocked(FAR.replace(year=2020)), "one_off": True}, "at: This never fires"),
        (lambda: {"one_off": True, "total_run_count": 1}, "one-off that has run"),
        (lambda: {"one_off": True, "expires": FAR.replace(year=2020)}, "never fires any more"),
        (lambda: {"priority": 12}, "priority: Priority must be 0 to 9; you gave 12."),
        (lambda: {"args": "[s3cret"}, "args cannot be read as JSON"),
        (lambda: {"kwargs": '{"colour": "s3cret"}'}, "unexpected keyword argument 'colour'"),
        (lambda: {"kwargs": '{"colour": "s3cret", "deep": ' + "[" * 120 + "]" * 120 + "}"}, "more than 100 deep"),
        (lambda: {"args": "[" * 100_000 + "]" * 100_000}, "args cannot be read as JSON"),
        (lambda: {"interval": every(2_000_000_000, "days")}, "interval of 2000000000 days is too long"),
        (lambda: {"name": " whole"}, "begins or ends with a space"),
        (lambda: {"kwargs": '["s3cret"]'}, "kwargs: This must be a dict; you gave a list."),
        (lambda: {"crontab": crontab("61 * * * *")}, "crontab cannot be read"),
        (lambda: {"expire_seconds": 0}, "misfire_grace: The grace in seconds must be 0.001 or more"),
    ],
)
def test_what_a_schedule_has_not_is_refused_and_stops_no_other_row(fields: Any, said: str) -> None:
    row(**{"name": "broken", **fields()})
    row("whole")
    row("zone", crontab=crontab("0 2 * * *"))
    for written in ("would create", "created"):
        status, told = adopt(*(["--write"] if written == "created" else []))
        refused, *others = told.splitlines()
        assert status == 1 and ": refused: " in refused and said in refused, told
        assert sum(line.startswith(f"{name}: {written}") for line in others for name in ("whole", "zone")) == 2
        assert "s3cret" not in told
    assert {*Schedule.objects.values_list("name", flat=True)} == {"whole", "zone"}


def test_a_row_that_was_edited_since_is_told_before_its_old_values_fire() -> None:
    edited = row(expire_seconds=60)
    row("other")
    adopt("--write")
    edited.args, edited.interval = '["s3cret"]', every(2, "hours")
    edited.save()
    status, told = adopt()
    assert status == 0 and "digest: exists, disabled\n  ! it differs from the row in args, every_seconds: " in told
    assert "other: exists, disabled\n" in told and told.count("!") == 1 and "s3cret" not in told
    assert "differs from the row in args, every_seconds" in adopt("digest", "--switch")[1]


def test_other_tasks_stay_rows_and_are_refused_only_where_they_are_named() -> None:
    row("cleanup", task="celery.backend_cleanup")
    row()
    status, told = adopt("--write")
    assert status == 0
    assert "cleanup: left a row: celery.backend_cleanup is not declared with @exclusive_task here" in told
    assert adopt("cleanup")[0] == 1


def test_rows_of_one_task_share_its_lock_name_and_are_told() -> None:
    make_schedule("stored", task="aegis_site.demo.tasks.ship_orders", lock_name=TASK)
    row("north", expire_seconds=60)
    row("south", expire_seconds=60)
    row("off", expire_seconds=60, enabled=False)
    said = adopt()[1]
    assert "! it shares the lock name with south, stored: a run that meets another is prevented" in said
    assert "! it shares the lock name with north, stored: " in said


def test_of_many_rows_of_one_task_a_few_are_named() -> None:
    for number in range(8):
        row(f"tenant{number}", expire_seconds=60)
    said = adopt("tenant0")[1]
    assert "with tenant1, tenant2, tenant3, tenant4, tenant5 and 2 more: a run" in said and "tenant6" not in said


def test_a_name_that_is_taken_is_refused() -> None:
    make_schedule("digest", task="aegis_site.demo.tasks.ship_orders")
    row()
    status, told = adopt("--write")
    assert (
        status == 1 and "The name is that of a schedule of aegis_site.demo.tasks.ship_orders. Rename the row" in told
    )


@pytest.mark.parametrize("arguments", [("--switch",), ("digset",), ("digset", "--write")])
def test_rows_that_are_not_named_or_not_there_are_a_usage_error(arguments: tuple[str, ...]) -> None:
    row()
    status, told = adopt(*arguments)
    assert status == 2 and ("Name the rows" in told or "There is no row 'digset'. Known: digest." in told)
    assert not Schedule.objects.exists()


def test_a_row_is_changed_over_and_nothing_before_is_fired() -> None:
    changed, other = row(), row("other")
    adopt("--write")
    heard = PeriodicTasks.last_change()
    before = database_now()
    status, told = adopt("digest", "--switch")
    assert status == 0 and "digest: switched: the row is disabled, the schedule fires; next run" in told
    changed.refresh_from_db()
    other.refresh_from_db()
    assert (changed.enabled, other.enabled) == (False, True)
    assert {*Schedule.objects.filter(enabled=True).values_list("name", flat=True)} == {"digest"}
    assert PeriodicTasks.last_change() > heard
    mint()
    assert not Tick.objects.exists() and Schedule.objects.get(name="digest").next_fire_at > before  # type: ignore[operator]
    rows = ScheduleChange.objects.count()
    assert adopt("digest", "--switch")[0] == 0 and ScheduleChange.objects.count() == rows


def test_a_beat_that_stores_a_last_run_meanwhile_does_not_enable_the_row_again() -> None:
    changed = row(last_run_at=database_now())
    adopt("--write")
    with closing(CatalogScheduler(app=current_app)) as beat:
        due = beat.all_as_schedule()["digest"]
    with transaction.atomic():
        assert adopt("digest", "--switch")[0] == 0
        beat_thread, _ = in_the_background(due.take)
        wait_until(lambda: execute(WAITING, {}), timeout=30, message="the beat waits for the row")
    beat_thread.join(timeout=30)
    changed.refresh_from_db()
    assert (changed.enabled, changed.last_run_at) == (False, None) and Schedule.objects.get().enabled


def test_a_beat_stores_a_last_run_and_nothing_else_of_a_row() -> None:
    changed = row(last_run_at=database_now() - timedelta(hours=2))
    with closing(CatalogScheduler(app=current_app)) as beat:
        due = beat.all_as_schedule()["digest"]
    PeriodicTask.objects.update(queue="edited")
    heard = PeriodicTasks.last_change()
    assert due.take()
    changed.refresh_from_db()
    assert (changed.last_run_at, changed.total_run_count, changed.queue) == (due.last_run_at, 1, "edited")
    assert PeriodicTasks.last_change() == heard  # which would have every row read anew


def test_one_command_may_do_both() -> None:
    row()
    status, told = adopt("digest", "--write", "--switch")
    assert status == 0 and "created, disabled" in told and "switched" in told
    assert Schedule.objects.get().enabled and not PeriodicTask.objects.get().enabled


def test_a_change_over_after_which_nothing_would_fire_is_refused() -> None:
    row("none")
    row("off", enabled=False)
    row("paused")
    row("past", clocked=clocked(FAR), one_off=True)
    row("good")
    adopt("off", "paused", "past", "good", "--write")
    pause("paused", why="audit", who="ada")
    Schedule.objects.filter(name="past").update(once_at=FAR.replace(year=2020))
    status, told = adopt("none", "off", "paused", "past", "good", "--switch")
    assert status == 1
    for name, said in (
        ("none", "adopt it with --write"), ("off", "The row is disabled"), ("paused", "is paused"),
        ("past", "never fires any more"),
    ):  # fmt: skip
        assert any(line.startswith(f"{name}: refused: ") and said in line for line in told.splitlines()), told
    assert {*PeriodicTask.objects.filter(enabled=True).values_list("name", flat=True)} == {"none", "paused", "past"}
    assert Schedule.objects.get(enabled=True).name == "good"
