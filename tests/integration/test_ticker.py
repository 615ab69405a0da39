"""The ticker on real PostgreSQL and a real broker: what is made, published, published again, settled and reaped."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from aegis_site.celery import app
from locks import Lease, lock_backends
from scheduler import ledger
from scheduler.minting import mint
from scheduler.models import Execution, LockName, Schedule, Tick
from scheduler.reaper import Reaper
from scheduler.runner import run
from scheduler.statements.dispatch import DUE
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.integration.test_runner import in_a_thread
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick, mint_all, store

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "aegis-test-ticker"


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    with app.connection_for_write() as broker:
        broker.default_channel.client.delete(QUEUE)


def queued() -> int:
    with app.connection_for_write() as broker:
        return int(broker.default_channel.client.llen(QUEUE))


def due_schedule(name: str = "each-second", *, activated: float = 4.0, **fields: object) -> Schedule:
    """A schedule each second, activated so long ago."""
    schedule = make_schedule(name, every_seconds=1, queue=QUEUE, **fields)
    since = database_now() - timedelta(seconds=activated)
    with connection.cursor() as cursor:  # past the trigger: these columns are not the edited ones
        cursor.execute("UPDATE aegis_scheduler_schedule SET activated_at = %s WHERE id = %s", [since, schedule.pk])
    schedule.refresh_from_db()
    return schedule


def test_a_pass_stores_each_fire_time_once_publishes_it_and_moves_on() -> None:
    schedule = due_schedule(misfire="fire_all")
    Ticker().tick()
    ticks = list(Tick.objects.order_by("fire_time"))
    assert len(ticks) >= 3
    assert {tick.state for tick in ticks} == {TickState.DISPATCHED}
    assert all((b.fire_time - a.fire_time) == timedelta(seconds=1) for a, b in pairwise(ticks))
    assert queued() == len(ticks)
    schedule.refresh_from_db()
    assert schedule.next_fire_at == ticks[-1].fire_time + timedelta(seconds=1)


@pytest.mark.parametrize(("misfire", "fired"), [("skip", 1), ("fire_once", 1), ("fire_all", 4)])
def test_fire_times_that_no_beat_stored_let_no_flood_loose(misfire: str, fired: int) -> None:
    """Every ten minutes, and no beat for forty-odd minutes: one start, or all where that was chosen."""
    schedule = make_schedule("slow", every_seconds=600, misfire=misfire, misfire_grace=1800, queue=QUEUE)
    now = database_now()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET anchor = %s, activated_at = %s WHERE id = %s",
            [now - timedelta(minutes=5), now - timedelta(minutes=43), schedule.pk],
        )
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET activated_at = %s WHERE id = %s",
            [now - timedelta(minutes=43), schedule.pk],
        )
    mint_all()
    fresh = Tick.objects.exclude(state=TickState.MISFIRED)
    assert fresh.count() == fired
    assert fresh.latest("fire_time").fire_time == now - timedelta(minutes=5)
    missed = Tick.objects.filter(state=TickState.MISFIRED)
    assert sum(missed.values_list("missed_count", flat=True)) == 4 - fired


def behind() -> Schedule:
    """A schedule of every ten minutes that catches all up; no beat stored its last four fire times."""
    now = database_now()
    schedule = make_schedule(
        "slow", every_seconds=600, anchor=now - timedelta(minutes=5), misfire="fire_all", queue=QUEUE
    )
    store(schedule, activated_at=now - timedelta(minutes=43))
    return schedule


def test_what_is_caught_up_has_one_tick_open_at_a_time_and_polls_nobody_meanwhile() -> None:
    behind()
    for turn in range(1, 5):
        (tick,) = mint().ticks
        assert mint().ticks == () and Tick.objects.count() == turn
        assert Ticker()._until_next() == 1.0  # as if nothing was due
        Tick.objects.filter(pk=tick.pk).update(state=TickState.CLOSED, outcome="failed")
    times = Tick.objects.order_by("pk").values_list("fire_time", flat=True)
    assert all(after - before == timedelta(minutes=10) for before, after in pairwise(times))
    assert mint().ticks == ()


def test_an_edit_of_what_is_caught_up_takes_effect_while_a_tick_is_open() -> None:
    schedule = behind()
    mint()
    Schedule.objects.filter(pk=schedule.pk).update(every_seconds=3600)
    mint()
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None and schedule.next_fire_at > database_now()


def test_a_restart_of_the_only_beat_fires_what_has_just_come_due_and_says_what_it_left_out() -> None:
    due_schedule(activated=40.0)
    mint()
    assert Tick.objects.filter(state=TickState.PLANNED).count() <= 6
    left_out = Tick.objects.get(state=TickState.MISFIRED)
    assert left_out.missed_count >= 33
    assert "no beat stored it in time" in left_out.reason


def test_two_beats_at_once_name_each_fire_time_once() -> None:
    for number in range(5):
        due_schedule(f"each-second-{number}")
    gate = threading.Barrier(2)

    def beat() -> int:
        gate.wait(timeout=10)
        return len(mint().ticks)

    made: list[int] = []
    threads = [threading.Thread(target=lambda: made.append(_closing(beat))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sum(made) == Tick.objects.count() >= 15


def _closing(call):  # type: ignore[no-untyped-def]
    try:
        return call()
    finally:
        connection.close()


def test_a_beat_that_dies_between_commit_and_publish_loses_nothing() -> None:
    due_schedule()
    minted = mint()
    Tick.objects.update(dispatch_at=database_now() - timedelta(seconds=1))
    assert queued() == 0

    Ticker().tend()

    assert queued() == len(minted.ticks) > 0
    assert set(Tick.objects.values_list("state", "copies")) == {(TickState.DISPATCHED, 1)}


def test_another_beat_does_not_publish_what_the_first_is_still_publishing() -> None:
    due_schedule()
    mint()
    Ticker().tend()
    assert queued() == 0


def test_a_broken_row_is_marked_and_the_others_fire() -> None:
    broken, good = due_schedule("broken"), due_schedule("good")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET every_seconds = NULL, cron_expression = '61 * * * *' WHERE id = %s",
            [broken.pk],
        )
    Ticker().tick()
    broken.refresh_from_db()
    assert "61" in broken.broken_reason
    assert Tick.objects.filter(schedule=good).exists()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET cron_expression = '1 * * * *' WHERE id = %s", [broken.pk])
    broken.refresh_from_db()
    assert broken.broken_reason == ""


@pytest.mark.parametrize("edit", ["orm", "update", "sql", "save"])
def test_every_way_of_editing_is_followed_and_fills_nothing_in(edit: str) -> None:
    schedule = due_schedule()
    Ticker().tick()
    revision, stored = schedule.revision, Tick.objects.count()
    if edit == "orm":
        schedule.every_seconds = 3600
        schedule.save(update_fields=["every_seconds"])
    elif edit == "update":
        Schedule.objects.filter(pk=schedule.pk).update(every_seconds=3600)
    elif edit == "sql":
        with connection.cursor() as cursor:
            cursor.execute("UPDATE aegis_scheduler_schedule SET every_seconds = 3600 WHERE id = %s", [schedule.pk])
    else:
        stale = Schedule.objects.get(pk=schedule.pk)
        stale.every_seconds = 3600
        stale.save()
    after = Schedule.objects.get(pk=schedule.pk)
    assert (after.revision, after.next_fire_at) == (revision + 1, None)
    Ticker().tick()
    after.refresh_from_db()
    assert after.next_fire_at is not None and after.next_fire_at > database_now()
    assert Tick.objects.exclude(state=TickState.MISFIRED).count() == stored


def test_a_fire_time_that_an_edit_overtakes_is_said_to_be_missed() -> None:
    schedule = due_schedule()
    Ticker().tick()
    schedule.refresh_from_db()
    past = database_now() - timedelta(seconds=0.05)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET next_fire_at = %s WHERE id = %s", [past, schedule.pk])
    Schedule.objects.filter(pk=schedule.pk).update(enabled=False)
    tick = Tick.objects.get(state=TickState.MISFIRED)
    assert tick.fire_time == past
    assert tick.reason == "the schedule was edited before a beat stored it"


NIGHTLY = {"cron_expression": "0 2 * * *"}
HOURLY = {"every_seconds": 3600}


def edited(*, hours_ago: float, fields: dict[str, Any], **stored: Any) -> list[Tick]:
    """What an edit says of a schedule that was edited before, while no beat passed."""
    schedule = make_schedule(**fields)
    activated = database_now() - timedelta(hours=hours_ago)
    store(schedule, **{"activated_at": activated, "next_fire_at": None, **stored})
    Schedule.objects.filter(pk=schedule.pk).update(start_at=activated - timedelta(days=1))
    Schedule.objects.filter(pk=schedule.pk).update(time_zone="Europe/Berlin")  # at once: says nothing
    return list(Tick.objects.all())


@pytest.mark.parametrize("fields", [NIGHTLY, HOURLY, {"once_at": datetime(2026, 1, 1, tzinfo=UTC)}])
@pytest.mark.parametrize("broken", ["", "ValueError: no such strategy"])
def test_fire_times_between_two_edits_without_a_beat_are_not_silent(fields: dict[str, Any], broken: str) -> None:
    (tick,) = edited(hours_ago=20_000, fields=fields, broken_reason=broken)
    assert (tick.outcome, tick.missed_count) == ("misfired", 0)
    assert tick.reason.endswith("how many passed is not known")
    assert tick.fire_time < database_now() - timedelta(hours=19_999)
    assert tick.through is not None and tick.through > database_now() - timedelta(minutes=5)


def test_a_broken_row_that_is_mended_by_an_edit_says_what_passed_since_its_next_fire_time() -> None:
    (tick,) = edited(
        hours_ago=9, fields=NIGHTLY, broken_reason="ValueError: x", next_fire_at=database_now() - timedelta(hours=3)
    )
    assert tick.reason.endswith("how many passed is not known")
    assert timedelta(hours=2) < database_now() - tick.fire_time < timedelta(hours=4)


@pytest.mark.parametrize(
    ("hours_ago", "fields", "stored"),
    [
        (0.001, NIGHTLY, {}),
        (0.1, {"once_at": datetime(2100, 1, 1, tzinfo=UTC)}, {}),
        (0.1, {"every_seconds": 86_400, "anchor": datetime.now(UTC) + timedelta(hours=1)}, {}),
        (9, {**NIGHTLY, "start_at": datetime(2100, 1, 1, tzinfo=UTC)}, {}),
        (9, NIGHTLY, {"enabled": False}),
        (9, NIGHTLY, {"paused_at": datetime(2026, 1, 1, tzinfo=UTC)}),
        (9, NIGHTLY, {"next_fire_at": datetime(2100, 1, 1, tzinfo=UTC)}),
        (9, NIGHTLY, {"next_fire_at": datetime(2100, 1, 1, tzinfo=UTC), "broken_reason": "x"}),
    ],
)
def test_an_edit_says_nothing_where_no_fire_time_can_have_passed(
    hours_ago: float, fields: dict[str, Any], stored: dict[str, Any]
) -> None:
    assert edited(hours_ago=hours_ago, fields=fields, **stored) == []


def test_the_stretch_begins_where_a_pause_has_ended_by_itself() -> None:
    began, ended = (database_now() - timedelta(hours=hours) for hours in (9, 1))
    (tick,) = edited(hours_ago=9, fields=NIGHTLY, paused_at=began, paused_until=ended)
    assert tick.fire_time == ended


def test_a_due_schedule_is_taken_although_somebody_refers_to_it_in_an_open_transaction() -> None:
    schedule = due_schedule()
    with transaction.atomic():
        make_tick(schedule, seconds_ago=3600)  # an insert that holds a key-share lock on the schedule
        assert in_a_thread(lambda: len(mint().ticks)) >= 3


def test_a_change_of_strategy_waits_until_nothing_under_the_name_is_open() -> None:
    schedule = due_schedule(alias="redis")
    tick = make_tick(schedule, seconds_ago=100)
    LockName.objects.update(alias_wanted="database")

    Ticker().tick()
    assert set(Tick.objects.values_list("lock_alias", flat=True)) == {"redis"}
    assert LockName.objects.get().alias_in_force == "redis"

    for open_tick in Tick.objects.all():
        run(delivery_of(open_tick), lambda context: None)
    tick.refresh_from_db()
    assert tick.state == TickState.CLOSED
    made = wait_until(lambda: mint().ticks, message="the next fire time was stored")
    assert LockName.objects.get().alias_in_force == "database"
    assert {tick.lock_alias for tick in made} == {"database"}


def test_a_change_of_strategy_waits_for_a_running_body_whose_tick_is_closed() -> None:
    """Without the tick guard the first finish closes the tick while other bodies are still inside."""
    schedule = due_schedule(alias="none", once_per_tick=False)
    tick = make_tick(schedule, seconds_ago=100)

    def body(context: object) -> None:
        in_a_thread(lambda: run(delivery_of(tick), lambda c: None))
        assert Tick.objects.get(pk=tick.pk).state == TickState.CLOSED
        LockName.objects.update(alias_wanted="database")
        in_a_thread(mint)
        assert LockName.objects.get().alias_in_force == "none"

    assert run(delivery_of(tick), body).state is ExecutionState.EXECUTED


@pytest.mark.parametrize(
    ("refusal", "outcome"), [(None, "misfired"), ("prevented", "prevented"), ("blocked", "blocked")]
)
def test_what_nobody_began_in_time_is_settled_by_its_refusals(refusal: str | None, outcome: str) -> None:
    schedule = make_schedule()
    tick = make_tick(schedule)
    if refusal == "prevented":
        ghost = lock_backends["database"].acquire(tick.lock_name)
        assert ghost is not None
        assert run(delivery_of(tick), lambda c: None).state is ExecutionState.PREVENTED
        lock_backends["database"].release(ghost)
    elif refusal == "blocked":
        assert run(delivery_of(tick, alias="etcd"), lambda c: None).state is ExecutionState.BLOCKED
    Tick.objects.update(deadline=database_now() - timedelta(seconds=1))

    Ticker().tend()

    tick.refresh_from_db()
    assert tick.outcome == outcome
    assert tick.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"enabled": False}, "disabled"), ({"paused_at": datetime(2020, 1, 1, tzinfo=UTC)}, "paused")],
)
def test_ticks_of_a_schedule_that_was_switched_off_are_missed_with_the_reason(
    change: dict[str, object], reason: str
) -> None:
    schedule = make_schedule()
    tick = make_tick(schedule)
    Schedule.objects.update(**change)
    Ticker().tick()
    tick.refresh_from_db()
    assert (tick.state, tick.reason) == (TickState.MISFIRED, reason)


def test_an_idle_pass_reads_no_schedule_whatever_the_size_of_the_catalog() -> None:
    lock = make_schedule("one").lock
    Schedule.objects.bulk_create(
        Schedule(name=f"s{number}", task="t", every_seconds=3600, lock=lock) for number in range(5000)
    )
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET next_fire_at = clock_timestamp() + interval '1 hour'")
        cursor.execute("ANALYZE aegis_scheduler_schedule")
        cursor.execute("EXPLAIN (ANALYZE, FORMAT TEXT, TIMING OFF) " + DUE, {"batch": 500, "on_time": 5.0})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "aegis_schedule_due" in plan, plan
    assert "Seq Scan on aegis_scheduler_schedule" not in plan, plan


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def dead_execution(alias: str, **fields: object) -> Execution:
    """A running execution whose process vanished: the row stays, the lease was given back or ran out."""
    schedule = make_schedule(alias=alias, **fields)
    tick = make_tick(schedule)
    delivery = delivery_of(tick)
    lease = Lease(
        name=tick.lock_name,
        alias=alias,
        lease_id=uuid4(),
        holder="x",
        ttl=1.0,
        grant_no=None,
        trusted_until=1e18,
    )
    started = ledger.begin(delivery, lease, acquire_ms=0.0, fenced=alias != "none")
    return Execution.objects.get(pk=started.id)


def passes(reaper: Reaper, clock: Clock, count: int) -> int:
    reaped = 0
    for _ in range(count):
        reaped += reaper.reap()
        clock.now += 1.0
    return reaped


@pytest.mark.parametrize("alias", ["none", "database", "optimistic", "advisory", "row_lock", "redis"])
def test_a_silent_execution_whose_lease_is_gone_is_abandoned_after_the_grace(alias: str) -> None:
    execution = dead_execution(alias)
    clock = Clock()
    reaper = Reaper(clock)
    assert passes(reaper, clock, 6) == 0
    assert passes(reaper, clock, 3) == 1
    execution.refresh_from_db()
    assert execution.state == "abandoned"
    assert "no heartbeat" in execution.reason
    assert execution.tick.outcome == "abandoned"


def test_abandoned_work_is_tried_again_while_attempts_are_left() -> None:
    execution = dead_execution("database", max_attempts=2)
    clock = Clock()
    passes(Reaper(clock), clock, 9)
    tick = Tick.objects.get(pk=execution.tick_id)
    assert (tick.state, tick.attempt) == (TickState.DISPATCHED, 2)
    assert run(delivery_of(tick), lambda c: None).state is ExecutionState.EXECUTED


def test_old_heartbeats_at_first_sight_abandon_nobody() -> None:
    """After an outage or a step of the database's clock every heartbeat looks old."""
    execution = dead_execution("none")
    Execution.objects.update(heartbeat_at=database_now() - timedelta(hours=1))
    clock = Clock()
    reaper = Reaper(clock)
    assert passes(reaper, clock, 1) == 0
    clock.now += 3600  # the reaper itself was frozen, or the database was away: one gap counts two intervals
    assert passes(reaper, clock, 1) == 0
    execution.refresh_from_db()
    assert execution.state == "running"


@pytest.mark.parametrize("alias", ["database", "redis", "optimistic", "advisory", "row_lock"])
def test_a_silent_execution_that_still_holds_its_lease_is_left_alone(alias: str) -> None:
    schedule = make_schedule(alias=alias, ttl=60.0)
    tick = make_tick(schedule)
    clock = Clock()
    reaper = Reaper(clock)

    def body(context: object) -> None:
        assert passes(reaper, clock, 20) == 0

    assert run(delivery_of(tick), body).state is ExecutionState.EXECUTED


def test_a_body_that_comes_back_after_it_was_abandoned_is_recorded_beside_the_state() -> None:
    tick = make_tick(make_schedule(alias="none"))
    clock = Clock()

    def body(context: object) -> None:
        assert passes(Reaper(clock), clock, 10) == 1

    outcome = run(delivery_of(tick), body)
    execution = Execution.objects.get(pk=outcome.execution.id)
    assert outcome.state is ExecutionState.LOST
    assert (execution.state, execution.returned_as) == ("abandoned", "executed")
    assert execution.returned_at is not None
