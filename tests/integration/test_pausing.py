"""Pause, resume, enable, disable: what fires, what is open, and the trace that is left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from scheduler.changes import Refused
from scheduler.minting import mint
from scheduler.models import Schedule, ScheduleChange, Tick
from scheduler.pausing import pause, resume, switch
from scheduler.runner import run
from scheduler.statements.dispatch import DUE
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.integration.test_ticker import due_schedule
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick, mint_all

pytestmark = pytest.mark.django_db(transaction=True)


def shift(schedule: Schedule, **seconds: float) -> None:
    """Move stored instants into the past, past the trigger that follows edits."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE aegis_scheduler_schedule DISABLE TRIGGER USER")
        for column, ago in seconds.items():
            at = database_now() - timedelta(seconds=ago)
            cursor.execute(f"UPDATE aegis_scheduler_schedule SET {column} = %s WHERE id = %s", [at, schedule.pk])
        cursor.execute("ALTER TABLE aegis_scheduler_schedule ENABLE TRIGGER USER")


def fired() -> list[datetime]:
    return list(
        Tick.objects.exclude(state=TickState.MISFIRED).order_by("fire_time").values_list("fire_time", flat=True)
    )


def test_a_paused_schedule_stores_nothing_and_resume_fills_nothing_in() -> None:
    schedule = due_schedule(misfire="fire_all")
    pause("each-second", why="audit", who="ops")
    assert mint().ticks == ()
    shift(schedule, paused_at=3600, activated_at=3600)
    assert mint().ticks == ()
    resume("each-second", who="ops")
    resumed = Schedule.objects.get().activated_at
    assert resumed is not None
    shift(schedule, activated_at=(database_now() - resumed).total_seconds() + 1)  # a second later
    mint()
    assert all(at > resumed - timedelta(seconds=1) for at in fired())
    assert not Tick.objects.filter(missed_count__gt=1).exists()


@pytest.mark.parametrize(("misfire", "times"), [("fire_all", 100), ("fire_once", 6), ("skip", 6)])
def test_a_pause_with_an_end_ends_by_itself_and_only_what_came_after_its_end_is_caught_up(
    misfire: str, times: int
) -> None:
    """Paused for an hour until 100 s ago, and no beat was alive since."""
    schedule = due_schedule(misfire=misfire, misfire_grace=5)
    pause("each-second", why="audit", who="ops", until=database_now() + timedelta(hours=1))
    shift(schedule, paused_at=3700, activated_at=3700, paused_until=100)
    schedule.refresh_from_db()
    assert schedule.paused_until is not None
    assert schedule.state_word(database_now()) == "Active"

    mint_all()

    assert min(fired()) > schedule.paused_until
    assert times - 1 <= len(fired()) <= times + 10
    missed = sum(Tick.objects.filter(state=TickState.MISFIRED).values_list("missed_count", flat=True))
    assert 99 <= len(fired()) + missed <= 112


def test_a_fire_time_at_the_end_of_a_pause_is_the_first_after_it() -> None:
    schedule = make_schedule("once", every_seconds=None, once_at=database_now() + timedelta(hours=1))
    pause("once", why="audit", who="ops", until=schedule.once_at)
    shift(schedule, paused_at=3600, activated_at=3600, paused_until=2, once_at=2)
    schedule.refresh_from_db()
    Schedule.objects.filter(pk=schedule.pk).update(once_at=schedule.paused_until)
    shift(schedule, activated_at=3600)

    mint()

    assert fired() == [schedule.paused_until]


def test_open_ticks_of_a_paused_schedule_are_refused_at_the_start_and_closed_with_the_reason() -> None:
    schedule = make_schedule("report")
    tick = make_tick(schedule)
    pause("report", why="audit", who="ops")
    assert run(delivery_of(tick), lambda c: None).state is ExecutionState.LATE
    Ticker().tick()
    tick.refresh_from_db()
    assert (tick.state, tick.reason) == (TickState.MISFIRED, "paused: audit")


def test_a_body_that_is_inside_goes_on_to_its_end() -> None:
    tick = make_tick(make_schedule("report"))
    ran = run(delivery_of(tick), lambda c: pause("report", why="audit", who="ops") and None)
    assert ran.state is ExecutionState.EXECUTED


def test_each_leaves_a_row_with_who_what_and_why() -> None:
    user = User.objects.create_user("ada")
    make_schedule("report")
    until = database_now() + timedelta(hours=1)
    pause("report", why="audit", who=user, until=until)
    stored = Schedule.objects.get()
    assert (stored.pause_reason, stored.paused_by, stored.paused_until) == ("audit", "ada", until)
    resume("report", why="audit is over", who="ada")
    switch("report", enabled=False, why="not wanted", who="cron@host")
    rows = list(ScheduleChange.objects.order_by("id"))
    assert [(row.who, row.changed_by, row.reason) for row in rows] == [
        ("ada", user, "audit"),
        ("ada", user, "audit is over"),
        ("cron@host", None, "not wanted"),
    ]
    assert rows[0].after["paused_until"] == str(until)
    assert rows[1].before["pause_reason"] == "audit" and rows[1].after["paused_at"] is None
    assert (rows[2].before, rows[2].after) == ({"enabled": True}, {"enabled": False})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"why": " "}, "needs a reason"),
        ({"why": "x" * 501}, "501 characters"),
        ({"why": "audit", "until": datetime(2020, 1, 1, tzinfo=UTC)}, "2020-01-01 00:00:00 UTC has passed"),
        ({"why": "audit", "until": datetime(2050, 1, 1)}, "no time zone"),
    ],
)
def test_a_pause_that_makes_no_sense_changes_nothing(arguments: dict[str, Any], said: str) -> None:
    make_schedule("report")
    with pytest.raises(Refused, match=said):
        pause("report", who="ops", **arguments)
    assert Schedule.objects.get().paused_at is None
    assert not ScheduleChange.objects.exists()


def test_what_is_so_already_is_refused() -> None:
    make_schedule("report")
    with pytest.raises(Refused, match="not paused"):
        resume("report", who="ops")
    with pytest.raises(Refused, match="enabled already"):
        switch("report", enabled=True, who="ops")
    pause("report", why="first", who="ops")
    pause("report", why="second", who="ops")
    assert Schedule.objects.get().pause_reason == "second"


def test_an_idle_pass_reads_no_paused_schedule_however_many_there_are() -> None:
    """They have no next fire time, as new ones have none, which are due at once."""
    lock = make_schedule("one").lock
    Schedule.objects.bulk_create(
        Schedule(name=f"s{n}", task="t", every_seconds=3600, lock=lock, paused_at=database_now()) for n in range(5000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE aegis_scheduler_schedule")
        cursor.execute("EXPLAIN (ANALYZE, TIMING OFF) " + DUE, {"batch": 500, "on_time": 5.0})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "aegis_schedule_due" in plan and "Rows Removed" not in plan, plan
