"""``aegis prune``: what is old goes, what is needed stays."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from aegis_site.celery import app
from scheduler import pruning
from scheduler.beat import CatalogScheduler
from scheduler.context import RunContext
from scheduler.models import Execution, Instance, Schedule, ScheduleChange, Tick
from scheduler.pausing import pause
from scheduler.pruning import keep_days, prune
from scheduler.runner import run
from scheduler.states import OPEN_TICKS, TickState
from tests.integration.test_runner import in_a_thread, nothing
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

MONTH = timedelta(days=30)


def ran(schedule: Schedule, days_ago: float, **fields: Any) -> Tick:
    """A tick that was executed so many days ago."""
    tick = make_tick(schedule, seconds_ago=days_ago * 86_400, **fields)
    run(delivery_of(tick), nothing)
    Tick.objects.filter(pk=tick.pk).update(closed_at=tick.fire_time)
    return tick


def test_what_ended_before_goes_with_its_executions_and_the_rest_stays() -> None:
    schedule = make_schedule("report")
    old, recent = [ran(schedule, days) for days in (90, 60, 31)], [ran(schedule, days) for days in (29, 1)]
    pause("report", why="audit", who="ops")
    gone = prune(MONTH)
    assert (gone.ticks, gone.executions) == (len(old), len(old))
    assert set(Tick.objects.values_list("pk", flat=True)) == {tick.pk for tick in recent}
    assert set(Execution.objects.values_list("tick_id", flat=True)) == {tick.pk for tick in recent}
    assert ScheduleChange.objects.count() == 1


@pytest.mark.parametrize("wrong", [0, -1, 0.5, True, "30"])
def test_a_beat_that_was_told_nonsense_deletes_nothing(
    settings: Any, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A beat starts without the checks that refuse it, and somebody may mean "off" by 0."""
    schedule = make_schedule("report")
    for days in (40, 1):
        ran(schedule, days)
    settings.AEGIS = {"KEEP_DAYS": wrong}
    keep_days()
    assert Tick.objects.count() == 2
    assert f"AEGIS['KEEP_DAYS'] is {wrong!r}; give whole days" in caplog.text


def test_a_beat_deletes_as_the_setting_says(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of it takes some, so that a beat that finds years of them is not busy with it for long."""
    monkeypatch.setattr(pruning, "BATCH", 1)
    monkeypatch.setattr(pruning, "BATCHES_OF_A_ROUND", 2)
    schedule = make_schedule("report")
    for days in (40, 39, 38, 1):
        ran(schedule, days)
    keep_days()
    assert Tick.objects.count() == 4
    settings.AEGIS = {"KEEP_DAYS": 30}
    for left in (2, 1, 1):
        keep_days()
        assert Tick.objects.count() == left


def test_a_beat_does_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.beat.PRUNE_INTERVAL", 0.05)
    settings.AEGIS = {"KEEP_DAYS": 30}
    schedule = make_schedule("report")
    ran(schedule, 40)
    ran(schedule, 1)
    Schedule.objects.update(enabled=False)
    beat = CatalogScheduler(app=app)
    try:
        beat.tick()
        wait_until(lambda: Tick.objects.count() == 1, message="what is old is gone")
    finally:
        beat.close()


@pytest.mark.parametrize("state", OPEN_TICKS)
def test_an_open_tick_stays_however_old_it_is(state: str) -> None:
    schedule = make_schedule("report")
    tick = make_tick(schedule, seconds_ago=1e8, state=state)
    ran(schedule, 1)
    assert prune(MONTH).ticks == 0
    assert Tick.objects.filter(pk=tick.pk).exists()


def test_the_newest_tick_of_each_schedule_stays() -> None:
    """A yearly schedule still says when it ran last."""
    yearly, daily = make_schedule("yearly"), make_schedule("daily")
    last = ran(yearly, 300)
    ran(yearly, 700)
    ran(daily, 1)
    assert prune(MONTH).ticks == 1
    assert Tick.objects.get(schedule=yearly).pk == last.pk


def test_runs_by_hand_go_although_the_recurrence_has_named_no_tick() -> None:
    schedule = make_schedule("by-hand")
    ran(schedule, 60, manual_key="run:1")
    assert prune(MONTH).ticks == 1


def test_a_running_execution_stays_although_its_tick_is_closed() -> None:
    """Without the tick guard the first of several bodies closes the tick."""
    schedule = make_schedule("baseline", alias="none", once_per_tick=False)
    tick = make_tick(schedule, seconds_ago=90 * 86_400)
    ran(schedule, 1)

    def body(context: RunContext) -> None:
        in_a_thread(lambda: run(delivery_of(tick), nothing))
        Tick.objects.filter(pk=tick.pk).update(closed_at=tick.fire_time)
        assert Tick.objects.get(pk=tick.pk).state == TickState.CLOSED
        assert in_a_thread(lambda: [prune(MONTH)])[0].ticks == 0

    run(delivery_of(tick), body)
    assert prune(MONTH).executions == 2


def test_a_refusal_that_names_a_pruned_holder_keeps_its_row() -> None:
    old, new = make_schedule("old", lock_name="shared"), make_schedule("new", lock_name="shared")
    holder, refused = make_tick(old, seconds_ago=90 * 86_400), make_tick(new)
    run(delivery_of(holder), lambda context: in_a_thread(lambda: run(delivery_of(refused), nothing)))
    Tick.objects.filter(pk=holder.pk).update(closed_at=holder.fire_time)
    ran(old, 1)
    assert prune(MONTH).ticks == 1
    assert Execution.objects.get(tick=refused).holder is None


def test_it_goes_in_batches_and_ticks_without_a_schedule_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "BATCH", 3)
    schedule = make_schedule("deleted")
    for days in range(40, 48):
        ran(schedule, days)
    schedule.delete()
    assert prune(MONTH).ticks == 8


def test_processes_that_have_long_been_silent_go() -> None:
    month_ago = database_now() - timedelta(days=31)
    Instance.objects.create(kind="worker", name="old", host="h", pid=1, heartbeat_at=month_ago)
    Instance.objects.create(kind="worker", name="new", host="h", pid=1)
    assert prune(MONTH).instances == 1


def test_the_command_says_what_went_and_refuses_nonsense() -> None:
    schedule = make_schedule("report")
    ran(schedule, 40)
    ran(schedule, 1)
    out = StringIO()
    call_command("aegis", "prune", "--older-than", "30", stdout=out)
    assert "Deleted 1 ticks, 1 executions" in out.getvalue()
    for days in ("0", "-1", "x", "1.5", "99999"):
        with pytest.raises(CommandError, match="whole number from 1"):
            call_command("aegis", "prune", "--older-than", days)
    with pytest.raises(CommandError, match="--older-than"):
        call_command("aegis", "prune")


def test_a_batch_is_found_by_an_index_among_many_ticks() -> None:
    schedule = make_schedule("busy")
    make_tick(schedule)
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO aegis_scheduler_tick (schedule_id, schedule_name, revision, fire_time, task, args, kwargs,
                   queue, delivery, lock_name, lock_alias, ttl, once_per_tick, grace, max_attempts, state, outcome,
                   reason, attempt, retries, copies, dispatch_at, deadline, closed_at, missed_count)
               SELECT %s, 'busy', 1, now() - n * interval '1 minute', 't', '[]', '{}', '', 'one_worker', 'x',
                   'database', 6, true, 60, 1, 'closed', 'executed', '', 1, 0, 0, now(), now(),
                   now() - n * interval '1 minute', 0
               FROM generate_series(1, 50000) n""",
            [schedule.pk],
        )
        cursor.execute("ANALYZE aegis_scheduler_tick")
    plan = pruning._old_ticks(timedelta(days=34))[: pruning.BATCH].explain()
    assert "Seq Scan on aegis_scheduler_tick" not in plan, plan
