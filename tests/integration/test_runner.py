"""The runner on real stores: every way in which one delivery can end."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection

from locks import LeaseLost, lock_backends
from locks.models import FenceRecord
from scheduler.body import RetryLater
from scheduler.context import RunContext
from scheduler.failpoints import hooked
from scheduler.models import Execution, LockName, Tick
from scheduler.runner import Outcome, run
from scheduler.states import ExecutionState, TickState
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

GUARDED = ["database", "optimistic", "advisory", "row_lock", "redis", "redlock"]
ALL = ["none", *GUARDED]


def nothing(context: RunContext) -> str:
    return "done"


def in_a_thread(call: Callable[[], Any]) -> Any:
    """Run ``call`` as another worker would: in a thread with connections of its own."""
    answers: list[Any] = []

    def target() -> None:
        try:
            answers.append(call())
        finally:
            connection.close()

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(timeout=30)
    assert answers, "the other worker did not come back"
    return answers[0]


def row(outcome: Outcome) -> Execution:
    return Execution.objects.select_related("tick").get(pk=outcome.execution.id)


@pytest.mark.parametrize("alias", ALL)
def test_a_delivery_runs_once_and_a_second_copy_is_a_duplicate(alias: str) -> None:
    tick = make_tick(make_schedule(alias=alias))

    first = run(delivery_of(tick), nothing)
    second = run(delivery_of(tick), nothing)

    assert first.state is ExecutionState.EXECUTED
    assert first.returned is not None and first.returned.value == "done"
    ended = row(first)
    assert ended.ended_at is not None and ended.ran is not None and ended.began
    assert (ended.tick.state, ended.tick.outcome) == (TickState.CLOSED, "executed")
    assert second.state is ExecutionState.DUPLICATE
    assert row(second).holder_id == ended.pk


@pytest.mark.parametrize("alias", GUARDED)
def test_the_lease_is_free_after_the_run(alias: str) -> None:
    tick = make_tick(make_schedule(alias=alias))
    run(delivery_of(tick), nothing)
    lease = lock_backends[alias].acquire(tick.lock_name)
    assert lease is not None
    lock_backends[alias].release(lease)


@pytest.mark.parametrize("alias", GUARDED)
def test_a_tick_under_a_held_name_is_prevented_on_evidence_and_names_the_holder(alias: str) -> None:
    schedule = make_schedule(alias=alias)
    earlier, later = make_tick(schedule, seconds_ago=10), make_tick(schedule)
    refused: list[Outcome] = []

    def body(context: RunContext) -> None:
        refused.append(in_a_thread(lambda: run(delivery_of(later), nothing)))

    ran = run(delivery_of(earlier), body)

    assert ran.state is ExecutionState.EXECUTED
    assert refused[0].state is ExecutionState.PREVENTED
    prevented = row(refused[0])
    assert prevented.holder_id == ran.execution.id
    assert (prevented.tick.state, prevented.tick.outcome) == (TickState.CLOSED, "prevented")
    assert str(ran.execution.id) in prevented.tick.reason


@pytest.mark.parametrize("alias", GUARDED)
def test_a_refusal_by_the_ticks_own_lease_closes_nothing(alias: str) -> None:
    """Worker 0 has acquired and not yet started; worker 1 is refused in between; worker 0 still runs the tick."""
    tick = make_tick(make_schedule(alias=alias))
    refused: list[Outcome] = []

    def sibling() -> None:
        refused.append(in_a_thread(lambda: run(delivery_of(tick), nothing)))

    with ExitStack() as stack:
        calls = iter([sibling])
        stack.enter_context(hooked("after-acquire", lambda: next(calls, lambda: None)()))
        ran = run(delivery_of(tick), nothing)

    assert refused[0].state is ExecutionState.PREVENTED
    assert ran.state is ExecutionState.EXECUTED
    assert Tick.objects.get(pk=tick.pk).outcome == "executed"


def test_a_refused_tick_without_evidence_is_due_for_dispatch_within_a_second() -> None:
    schedule = make_schedule(alias="database")
    tick = make_tick(schedule)
    ghost = lock_backends["database"].acquire(tick.lock_name)
    assert ghost is not None

    refused = run(delivery_of(tick), nothing)

    again = Tick.objects.get(pk=tick.pk)
    assert refused.state is ExecutionState.PREVENTED and again.state == TickState.PLANNED
    assert (again.dispatch_at - row(refused).recorded_at).total_seconds() < 2.0
    lock_backends["database"].release(ghost)


def test_a_late_copy_of_tick_n_does_not_cost_tick_n_plus_1() -> None:
    """The late copy holds the free lease for a moment; the only delivery of n+1 is refused in that moment."""
    schedule = make_schedule(alias="database")
    old, new = make_tick(schedule, seconds_ago=10), make_tick(schedule)
    run(delivery_of(old), nothing)
    refused: list[Outcome] = []
    calls = iter([lambda: refused.append(in_a_thread(lambda: run(delivery_of(new), nothing)))])

    with hooked("after-acquire", lambda: next(calls, lambda: None)()):
        late = run(delivery_of(old), nothing)

    assert late.state is ExecutionState.DUPLICATE
    assert refused[0].state is ExecutionState.PREVENTED
    assert Tick.objects.get(pk=new.pk).state == TickState.PLANNED
    assert run(delivery_of(new), nothing).state is ExecutionState.EXECUTED


def test_without_the_tick_guard_each_copy_runs_in_turn() -> None:
    tick = make_tick(make_schedule(alias="redis", once_per_tick=False))
    states = [run(delivery_of(tick), nothing).state for _ in range(3)]
    assert states == [ExecutionState.EXECUTED] * 3
    assert Tick.objects.get(pk=tick.pk).outcome == "executed"


def test_without_the_tick_guard_a_late_copy_does_not_run_under_a_strategy_that_was_left() -> None:
    schedule = make_schedule(alias="redis", once_per_tick=False)
    tick = make_tick(schedule)
    run(delivery_of(tick), nothing)
    LockName.objects.update(alias_wanted="database", alias_in_force="database")
    assert run(delivery_of(tick), nothing).state is ExecutionState.DUPLICATE


def test_without_a_lock_and_guard_two_bodies_are_inside_at_once() -> None:
    tick = make_tick(make_schedule(alias="none", once_per_tick=False))
    inner: list[Outcome] = []

    def body(context: RunContext) -> None:
        inner.append(in_a_thread(lambda: run(delivery_of(tick), nothing)))

    assert run(delivery_of(tick), body).state is ExecutionState.EXECUTED
    assert inner[0].state is ExecutionState.EXECUTED


def test_with_the_guard_and_no_lock_the_second_copy_is_a_duplicate() -> None:
    tick = make_tick(make_schedule(alias="none"))
    inner: list[Outcome] = []

    def body(context: RunContext) -> None:
        inner.append(in_a_thread(lambda: run(delivery_of(tick), nothing)))

    run(delivery_of(tick), body)
    assert inner[0].state is ExecutionState.DUPLICATE


@pytest.mark.parametrize("alias", GUARDED)
def test_each_start_raises_the_fence(alias: str) -> None:
    schedule = make_schedule(alias=alias)
    tokens = []
    for second in (2, 1):
        outcome = run(delivery_of(make_tick(schedule, seconds_ago=second)), nothing)
        tokens.append(outcome.execution.token)
    fence = FenceRecord.objects.get(name=schedule.lock_id)
    assert 0 < tokens[0] < tokens[1]
    lease = lock_backends[alias].acquire("another")
    assert lease is not None and lock_backends[alias].release(lease)
    assert (fence.token, fence.alias) == (tokens[1], lease.numbering)
    assert fence.lease_id == outcome.execution.lease_id


def test_the_baseline_raises_no_fence() -> None:
    schedule = make_schedule(alias="none", once_per_tick=False)
    outcome = run(delivery_of(make_tick(schedule)), nothing)
    assert outcome.execution.token is None
    assert FenceRecord.objects.get(name=schedule.lock_id).token == 0


def test_a_failing_body_is_failed_and_the_error_is_kept() -> None:
    tick = make_tick(make_schedule())

    def body(context: RunContext) -> None:
        raise ValueError("no such region")

    outcome = run(delivery_of(tick), body)
    failed = row(outcome)
    assert (failed.state, failed.error) == ("failed", "ValueError: no such region")
    assert failed.tick.outcome == "failed"


def test_a_hard_time_limit_is_recorded_before_the_process_goes() -> None:
    outcome = run(delivery_of(make_tick(make_schedule())), lambda context: (_ for _ in ()).throw(SystemExit("limit")))
    assert row(outcome).state == "failed"


def test_a_retry_waits_in_the_tick_and_a_late_copy_of_the_first_attempt_does_not_take_it() -> None:
    tick = make_tick(make_schedule())

    def body(context: RunContext) -> None:
        raise RetryLater(when=0.0)

    outcome = run(delivery_of(tick), body)
    again = Tick.objects.get(pk=tick.pk)
    assert (outcome.state, again.state, again.attempt, again.retries) == (
        "retried",
        TickState.DISPATCHED,
        2,
        1,
    )

    copy_of_first = run(delivery_of(tick), nothing)
    assert copy_of_first.state is ExecutionState.DUPLICATE
    assert run(delivery_of(again), nothing).state is ExecutionState.EXECUTED


def test_a_retry_survives_the_way_from_a_child_to_its_worker() -> None:
    """An exception that cannot be unpickled there ends the whole worker."""
    sent = pickle.loads(pickle.dumps(RetryLater(exc=ValueError("gone"), when=2.5)))
    assert (sent.countdown, str(sent.exc)) == (2.5, "gone")


def test_start_before_the_ticker_has_marked_the_tick_dispatched() -> None:
    tick = make_tick(make_schedule(), state=TickState.PLANNED)
    assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED


@pytest.mark.parametrize("guarded", [True, False])
def test_a_message_that_comes_after_the_deadline_starts_nothing(guarded: bool) -> None:
    """No beat has closed the tick; without the guard it may also have run elsewhere in time."""
    tick = make_tick(make_schedule(once_per_tick=guarded))
    if not guarded:
        assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED
    Tick.objects.update(deadline=database_now())
    late = run(delivery_of(tick), nothing)
    assert late.state is ExecutionState.LATE and late.execution.reason == "the deadline of the tick has passed"
    Tick.objects.update(state=TickState.WAITING, outcome="", closed_at=None)  # which has no deadline
    assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED


def test_a_disabled_schedule_starts_nothing_any_more() -> None:
    schedule = make_schedule()
    tick = make_tick(schedule)
    type(schedule).objects.filter(pk=schedule.pk).update(enabled=False)
    outcome = run(delivery_of(tick), nothing)
    assert outcome.state is ExecutionState.LATE
    assert row(outcome).reason == "the schedule is disabled, paused or deleted"


def test_a_deleted_schedule_keeps_its_audit_and_starts_nothing() -> None:
    schedule = make_schedule()
    ran, open_tick = make_tick(schedule, seconds_ago=5), make_tick(schedule)
    run(delivery_of(ran), nothing)
    schedule.delete()
    assert run(delivery_of(open_tick), nothing).state is ExecutionState.LATE
    assert Tick.objects.get(pk=ran.pk).schedule_name == "nightly"


def test_an_alias_that_this_worker_does_not_know_blocks_and_leaves_the_tick_open() -> None:
    tick = make_tick(make_schedule())
    outcome = run(delivery_of(tick, alias="etcd"), nothing)
    assert outcome.state is ExecutionState.BLOCKED
    assert "etcd" in row(outcome).reason
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED


def test_a_ttl_that_the_strategy_cannot_keep_blocks_and_leaves_the_tick_open() -> None:
    tick = make_tick(make_schedule(alias="redlock"))
    outcome = run(delivery_of(tick, ttl=3600.0), nothing)
    assert outcome.state is ExecutionState.BLOCKED
    assert "3600" in row(outcome).reason
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED


def test_a_body_whose_lease_was_taken_away_is_lost_not_executed() -> None:
    schedule = make_schedule(alias="database", ttl=1.0)
    tick = make_tick(schedule)

    def body(context: RunContext) -> None:
        held = lock_backends["database"].inspect(context.lock_name)
        assert held is not None and held.lease_id is not None
        lock_backends["database"].force_release(context.lock_name, lease_id=held.lease_id)
        stop = threading.Event()
        for _ in range(200):
            context.check()
            stop.wait(0.02)

    outcome = run(delivery_of(tick), body)
    assert outcome.state is ExecutionState.LOST
    assert isinstance(outcome.returned.raised, LeaseLost)  # type: ignore[union-attr]
    assert Tick.objects.get(pk=tick.pk).outcome == "lost"


def test_a_body_that_never_asks_and_loses_its_lease_is_lost() -> None:
    """Whatever it returns: its successor may have been let in meanwhile."""
    tick = make_tick(make_schedule(alias="redis", ttl=0.6))

    def body(context: RunContext) -> str:
        held = lock_backends["redis"].inspect(context.lock_name)
        assert held is not None and held.lease_id is not None
        lock_backends["redis"].force_release(context.lock_name, lease_id=held.lease_id)
        wait_until(lambda: context.lost, message="keep-alive has seen that the lease is gone")
        return "done all the same"

    outcome = run(delivery_of(tick), body)
    assert outcome.state is ExecutionState.LOST
    assert row(outcome).reason == "the lease ended before the body did"


def test_optimistic_detects_a_body_that_outlived_its_window_and_was_overtaken() -> None:
    schedule = make_schedule(alias="optimistic", ttl=0.3)
    first, second = make_tick(schedule, seconds_ago=5), make_tick(schedule)
    overtaken: list[Outcome] = []

    def body(context: RunContext) -> None:
        stop = threading.Event()
        while not overtaken or overtaken[-1].state is not ExecutionState.EXECUTED:
            stop.wait(0.05)
            overtaken.append(in_a_thread(lambda: run(delivery_of(make_tick(schedule)), nothing)))

    outcome = run(delivery_of(first), body)
    assert outcome.state is ExecutionState.LOST
    assert second.state == TickState.PLANNED


def test_optimistic_that_outlived_its_window_unused_by_others_is_executed() -> None:
    schedule = make_schedule(alias="optimistic", ttl=0.2)
    stop = threading.Event()
    outcome = run(delivery_of(make_tick(schedule)), lambda context: stop.wait(0.5))
    assert outcome.state is ExecutionState.EXECUTED


def test_a_lease_that_ends_before_the_body_gives_the_attempt_back() -> None:
    schedule = make_schedule(alias="database", ttl=2.0)
    tick = make_tick(schedule)
    stop = threading.Event()
    entered: list[int] = []

    with hooked("after-start", lambda: stop.wait(2.3)):
        outcome = run(delivery_of(tick), lambda context: entered.append(1))

    lost, again = row(outcome), Tick.objects.get(pk=tick.pk)
    assert not entered
    assert (lost.state, lost.began) == ("lost", False)
    assert (again.state, again.attempt) == (TickState.DISPATCHED, 1)
    assert run(delivery_of(again), nothing).state is ExecutionState.EXECUTED


def test_a_lease_that_ends_before_the_start_starts_nothing() -> None:
    tick = make_tick(make_schedule(alias="database", ttl=0.3))
    stop = threading.Event()
    with hooked("after-acquire", lambda: stop.wait(0.5)):
        outcome = run(delivery_of(tick), nothing)
    assert outcome.state is ExecutionState.BLOCKED
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED


@pytest.mark.parametrize("alias", ["database", "redis"])
def test_a_start_out_of_grant_order_is_refused(alias: str) -> None:
    """Worker 0 acquires and freezes past its TTL; worker 1 acquires, starts and ends; worker 0 wakes up."""
    schedule = make_schedule(alias=alias)
    stale, fresh = make_tick(schedule, seconds_ago=5), make_tick(schedule)

    def overtake() -> None:
        backend = lock_backends[alias]
        held = backend.inspect(schedule.lock_id)
        assert held is not None and held.lease_id is not None
        backend.force_release(schedule.lock_id, lease_id=held.lease_id)
        assert in_a_thread(lambda: run(delivery_of(fresh), nothing)).state is ExecutionState.EXECUTED

    calls = iter([overtake])
    with hooked("after-acquire", lambda: next(calls, lambda: None)()):
        outcome = run(delivery_of(stale), nothing)
    assert outcome.state is ExecutionState.PREVENTED
    assert row(outcome).reason == "a newer grant of this name has started"
