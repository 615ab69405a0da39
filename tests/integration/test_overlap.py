"""``overlap = queue_one``: one refused tick of a schedule waits for the end of the run that refused it."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from aegis_site.celery import app
from locks import lock_backends
from scheduler.body import RetryLater
from scheduler.context import RunContext
from scheduler.failpoints import hooked
from scheduler.models import Execution, Schedule, Tick
from scheduler.notes import noted, notes
from scheduler.reaper import Reaper
from scheduler.runner import Outcome, run
from scheduler.statements import dispatch
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker, _run
from tests.integration.test_runner import in_a_thread, nothing
from tests.integration.test_ticker import Clock, dead_execution, passes
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick
from tests.support.loss import lock_waiters

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "aegis-test-overlap"


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    with app.connection_for_write() as broker:
        broker.default_channel.client.delete(QUEUE)


def queued() -> int:
    with app.connection_for_write() as broker:
        return int(broker.default_channel.client.llen(QUEUE))


def queueing(name: str = "report", **fields: Any) -> Schedule:
    return make_schedule(name, overlap="queue_one", queue=QUEUE, **fields)


def refused_while_inside(*ticks: Tick, then: Any = None) -> list[Outcome]:
    """Deliver ``ticks`` while the body of another tick of their lock name is inside."""
    schedule = ticks[0].schedule
    assert schedule is not None
    refused: list[Outcome] = []

    def body(context: RunContext) -> None:
        refused.extend(in_a_thread(lambda tick=tick: run(delivery_of(tick), nothing)) for tick in ticks)
        if then is not None:
            then()

    ran = run(delivery_of(make_tick(schedule, seconds_ago=1000)), body)
    assert ran.state is ExecutionState.EXECUTED
    return refused


def wake_lost() -> None:
    """As if nobody had been woken: the tick waits, and nothing runs."""
    Tick.objects.filter(state=TickState.DISPATCHED).update(state=TickState.WAITING)


@pytest.mark.parametrize("alias", ["database", "optimistic", "redis", "redlock"])
def test_a_refused_tick_waits_is_woken_by_the_end_of_the_run_and_published_by_the_next_pass(alias: str) -> None:
    tick = make_tick(queueing(alias=alias))
    seen: list[Tick] = []
    (refused,) = refused_while_inside(tick, then=lambda: seen.append(Tick.objects.get(pk=tick.pk)))

    assert refused.state is ExecutionState.PREVENTED
    assert seen[0].state == TickState.WAITING
    assert "waits for the end of execution" in seen[0].reason
    woken = Tick.objects.get(pk=tick.pk)
    ended = Execution.objects.get(state=ExecutionState.EXECUTED)
    assert (woken.state, woken.reason, woken.copies) == (TickState.DISPATCHED, "", 0)
    assert ended.ended_at is not None and woken.dispatch_at >= ended.ended_at
    Ticker().tend()
    assert queued() == 1
    assert run(delivery_of(woken), nothing).state is ExecutionState.EXECUTED


def test_the_deadline_counts_from_the_wake_up_and_no_deadline_settles_who_waits() -> None:
    """A run of an hour, a grace of a minute: the tick that waits for it is not missed."""
    tick = make_tick(queueing(misfire_grace=60))

    def an_hour_passes() -> None:
        Tick.objects.filter(pk=tick.pk).update(deadline=database_now() - timedelta(hours=1))
        Ticker().tend()
        assert Tick.objects.get(pk=tick.pk).state == TickState.WAITING

    refused_while_inside(tick, then=an_hour_passes)
    woken = Tick.objects.get(pk=tick.pk)
    assert 55 < (woken.deadline - database_now()).total_seconds() <= 60


def test_the_older_waits_and_a_newer_one_is_prevented_because_the_queue_is_full() -> None:
    schedule = queueing()
    older, newer = make_tick(schedule, seconds_ago=10), make_tick(schedule)

    def both() -> None:
        assert Tick.objects.get(pk=older.pk).state == TickState.WAITING
        closed = Tick.objects.get(pk=newer.pk)
        assert (closed.state, closed.outcome) == (TickState.CLOSED, "prevented")
        assert "queue full" in closed.reason

    refused_while_inside(older, newer, then=both)


def test_each_schedule_of_a_shared_name_has_a_place_of_its_own() -> None:
    first = make_tick(queueing("first", lock_name="shared"))
    second = make_tick(queueing("second", lock_name="shared"))
    skips = make_tick(make_schedule("skips", lock_name="shared"))

    def all_told() -> None:
        states = dict(Tick.objects.values_list("schedule_name", "state").exclude(state=TickState.STARTED))
        assert states == {"first": TickState.WAITING, "second": TickState.WAITING, "skips": TickState.CLOSED}

    refused_while_inside(first, second, skips, then=all_told)
    assert Tick.objects.filter(state=TickState.DISPATCHED).count() == 2


def test_two_that_are_refused_at_the_same_moment_get_one_place() -> None:
    """All statements see an empty place; the constraint decides, and the losers are told that the queue is full.

    They meet at the rows of their ticks, which are locked until each has begun: all have looked before one is stored.
    """
    schedule = queueing()
    ticks = [make_tick(schedule, seconds_ago=n) for n in range(3)]
    gate = threading.Barrier(len(ticks))
    outcomes: list[Outcome] = []

    def body(context: RunContext) -> None:
        threads = [
            threading.Thread(target=lambda tick=tick: outcomes.append(run(delivery_of(tick), nothing)))
            for tick in ticks
        ]
        with hooked("after-refusal", lambda: _meet(gate)), transaction.atomic():
            list(Tick.objects.filter(pk__in=[t.pk for t in ticks]).select_for_update())
            for thread in threads:
                thread.start()
            wait_until(lambda: lock_waiters() == len(ticks), message="all have begun")
        for thread in threads:
            thread.join(timeout=30)
        assert {outcome.state for outcome in outcomes} == {ExecutionState.PREVENTED}
        assert len(outcomes) == len(ticks)
        states = list(Tick.objects.filter(pk__in=[t.pk for t in ticks]).values_list("state", flat=True))
        assert sorted(states) == [TickState.CLOSED] * 2 + [TickState.WAITING]

    run(delivery_of(make_tick(schedule, seconds_ago=1000)), body)


def _meet(gate: threading.Barrier) -> None:
    gate.wait(timeout=20)


def test_without_evidence_nobody_waits() -> None:
    """A ghost holds the name: no execution will end, so nothing would ever wake the tick."""
    tick = make_tick(queueing())
    ghost = lock_backends["database"].acquire(tick.lock_name)
    assert ghost is not None
    run(delivery_of(tick), nothing)
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED
    lock_backends["database"].release(ghost)


def test_a_tick_that_is_refused_after_its_deadline_neither_waits_nor_is_prevented() -> None:
    """Nobody asked for it in time: the next pass says that it was missed."""
    schedules = [queueing(lock_name="shared"), make_schedule("skips", lock_name="shared")]
    ticks = [make_tick(schedule, deadline=database_now()) for schedule in schedules]
    refused = refused_while_inside(*ticks)
    assert [outcome.state for outcome in refused] == [ExecutionState.LATE] * 2
    Ticker().tend()
    of_both = Tick.objects.filter(pk__in=[tick.pk for tick in ticks])
    assert set(of_both.values_list("outcome", flat=True)) == {"misfired"}


def test_a_run_that_ends_between_the_refusal_and_the_wait_does_not_leave_the_tick_asleep() -> None:
    """The statement of the refusal has read "running"; the end is stored before it commits, and wakes nobody.

    The refusal is held in the middle: its statement has its snapshot and waits for the tick's row.
    """
    schedule = queueing()
    holder, tick = make_tick(schedule, seconds_ago=1000), make_tick(schedule)
    refusals: list[Outcome] = []
    entered, leave, refusing = threading.Event(), threading.Event(), threading.Event()

    def body(context: RunContext) -> None:
        entered.set()
        assert leave.wait(timeout=20)

    runs = threading.Thread(target=lambda: run(delivery_of(holder), body))
    runs.start()
    assert entered.wait(timeout=20)

    def refuse() -> None:
        with hooked("after-refusal", refusing.set):
            refusals.append(run(delivery_of(tick), nothing))

    with transaction.atomic():
        Tick.objects.select_for_update().get(pk=tick.pk)
        refuses = threading.Thread(target=refuse)
        refuses.start()
        assert refusing.wait(timeout=20)
        _await_row_lock()
        leave.set()
        runs.join(timeout=20)
        assert not Execution.objects.filter(state=ExecutionState.RUNNING).exists()
    refuses.join(timeout=20)
    assert refusals[0].state is ExecutionState.PREVENTED
    assert Tick.objects.get(pk=tick.pk).state == TickState.WAITING  # asleep, and nobody is left who would wake it

    Ticker().tend()

    assert Tick.objects.get(pk=tick.pk).state == TickState.DISPATCHED
    assert queued() == 1


def _await_row_lock() -> None:
    """Return when a statement of the ledger waits for the row that this thread holds."""

    wait_until(lock_waiters, timeout=10, message="the refusal waits for the tick's row")


def test_the_end_of_a_body_does_not_wait_for_a_stranger_who_holds_the_waiting_tick() -> None:
    tick = make_tick(queueing())
    locked, release = threading.Event(), threading.Event()

    def stranger() -> None:
        with transaction.atomic():
            Tick.objects.select_for_update().get(pk=tick.pk)
            locked.set()
            release.wait(timeout=30)
        connection.close()

    holds = threading.Thread(target=stranger)

    def hold() -> None:
        holds.start()
        assert locked.wait(timeout=20)

    refused_while_inside(tick, then=hold)
    assert Tick.objects.get(pk=tick.pk).state == TickState.WAITING
    release.set()
    holds.join(timeout=20)
    Ticker().tend()
    assert Tick.objects.get(pk=tick.pk).state == TickState.DISPATCHED


def waiting_beside(alias: str, **fields: Any) -> tuple[Tick, Execution]:
    """A tick that waits for an execution whose process has died."""
    execution = dead_execution(alias, **fields)
    schedule = Schedule.objects.get()
    tick = make_tick(schedule, seconds_ago=-1, overlap="queue_one", queue=QUEUE)
    assert execution.tick_id != tick.pk
    Tick.objects.filter(pk=tick.pk).update(state=TickState.WAITING)
    return tick, execution


def test_the_reaper_wakes_who_waits_for_a_process_that_died() -> None:
    tick, _ = waiting_beside("redis")
    Ticker().tend()
    assert Tick.objects.get(pk=tick.pk).state == TickState.WAITING
    clock = Clock()
    assert passes(Reaper(clock), clock, 9) == 1
    assert Tick.objects.get(pk=tick.pk).state == TickState.DISPATCHED


def test_the_reaper_does_not_wake_who_waits_while_a_fresh_tick_runs_under_the_name() -> None:
    tick, _ = waiting_beside("redis")
    fresh = make_tick(tick.schedule, seconds_ago=-2, queue=QUEUE)  # type: ignore[arg-type]

    def body(context: RunContext) -> None:
        clock = Clock()
        assert passes(Reaper(clock), clock, 9) == 1
        assert Tick.objects.get(pk=tick.pk).state == TickState.WAITING

    assert run(delivery_of(fresh), body).state == ExecutionState.EXECUTED
    assert Tick.objects.get(pk=tick.pk).state == TickState.DISPATCHED


def test_who_waits_while_nothing_runs_is_woken_by_the_next_pass() -> None:
    tick = make_tick(queueing())
    refused_while_inside(tick)
    wake_lost()
    Ticker().tend()
    assert Tick.objects.get(pk=tick.pk).state == TickState.DISPATCHED
    assert queued() == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"enabled": False}, "disabled"),
        ({"paused_at": "2020-01-01T00:00:00Z", "pause_reason": "audit"}, "paused: audit"),
    ],
)
def test_who_waits_for_a_schedule_that_is_switched_off_is_closed_with_the_reason(
    change: dict[str, Any], reason: str
) -> None:
    tick = make_tick(queueing())

    def off() -> None:
        Schedule.objects.update(**change)
        Ticker().tick()
        closed = Tick.objects.get(pk=tick.pk)
        assert (closed.state, closed.reason) == (TickState.MISFIRED, reason)

    refused_while_inside(tick, then=off)


def test_who_waits_for_a_deleted_schedule_is_closed() -> None:
    schedule = queueing()
    tick = make_tick(schedule)
    refused_while_inside(tick)
    wake_lost()
    schedule.delete()
    _run(dispatch.SWITCHED_OFF, {"batch": 10})
    closed = Tick.objects.get(pk=tick.pk)
    assert (closed.state, closed.reason) == (TickState.MISFIRED, "deleted")


def test_a_retry_that_meets_another_run_waits_too_and_is_never_dropped_for_a_full_queue() -> None:
    schedule = queueing()
    retried, other = make_tick(schedule, seconds_ago=20), make_tick(schedule, seconds_ago=10)

    def again(context: RunContext) -> None:
        raise RetryLater(when=0.0)

    run(delivery_of(retried), again)
    second = Tick.objects.get(pk=retried.pk)
    assert second.attempt == 2

    def neither_lost() -> None:
        assert Tick.objects.get(pk=other.pk).state == TickState.WAITING
        assert Tick.objects.get(pk=retried.pk).state == TickState.DISPATCHED

    refused_while_inside(other, second, then=neither_lost)


def test_a_copy_that_arrives_while_its_tick_waits_may_start_it_if_the_name_is_free() -> None:
    tick = make_tick(queueing())
    refused_while_inside(tick)
    wake_lost()
    assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED
    closed = Tick.objects.get(pk=tick.pk)
    assert (closed.state, closed.outcome, closed.reason) == (TickState.CLOSED, "executed", "")


def test_three_refusals_in_a_row_are_warned_of_once_and_noted_beside_the_schedule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loser = make_schedule("loser", lock_name="shared")
    winner = make_schedule("winner", lock_name="shared")
    ticks = [make_tick(loser, seconds_ago=50 - n) for n in range(5)]

    def told() -> list[str]:
        return notes(noted(Schedule.objects.filter(pk=loser.pk)).get(), database_now(), None)

    def body(context: RunContext) -> None:
        for number, tick in enumerate(ticks):
            in_a_thread(lambda tick=tick: run(delivery_of(tick), nothing))
            assert bool(told()) == (number >= 2)

    with caplog.at_level(logging.WARNING, "aegis.starvation"):
        run(delivery_of(make_tick(winner, seconds_ago=1000)), body)
    warned = [record.getMessage() for record in caplog.records if record.name == "aegis.starvation"]
    assert len(warned) == 1
    assert "loser" in warned[0] and "queue one" in warned[0]
    assert told() and "queue one" in told()[0]
    Schedule.objects.filter(pk=loser.pk).update(overlap="queue_one")
    assert not told()
