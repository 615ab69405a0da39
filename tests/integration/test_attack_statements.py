"""Statements whose answers are lost, and the clauses that no happy path needs."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from aegis_site.celery import app
from aegis_site.embedded import Services
from locks import lock_backends
from locks.connection import execute
from locks.models import FenceRecord
from locks.testing import TcpProxy
from scheduler import ledger, manual, runner
from scheduler.body import RetryLater
from scheduler.conf import conf
from scheduler.context import RunContext
from scheduler.exceptions import LedgerUnavailable
from scheduler.failpoints import hooked
from scheduler.minting import mint
from scheduler.models import Execution, Schedule, Tick
from scheduler.reaper import Reaper
from scheduler.retargeting import retarget
from scheduler.runner import run
from scheduler.statements import dispatch
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.contract.wires import WIRED, wired_database, wired_redis
from tests.integration.test_runner import in_a_thread, nothing
from tests.integration.test_ticker import (  # noqa: F401
    QUEUE,
    Clock,
    dead_execution,
    due_schedule,
    empty_queue,
    passes,
    queued,
)
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def lost_replies(
    monkeypatch: pytest.MonkeyPatch, wanted: Callable[[str], bool], times: int = 1, *, requests_too: bool = False
) -> Iterator[list[str]]:
    """The ledger's statements go over a wire that loses the answer to the first ``times`` wanted ones.

    ``requests_too``: they do not even arrive.
    """
    lost: list[str] = []

    def over_the_wire(sql: str, params: Any = None) -> Any:
        if not wanted(sql) or len(lost) >= times:
            return execute(sql, params, using=WIRED)
        execute("SELECT 1", using=WIRED)  # connected: it is the answer that is lost, not the way there
        lost.append(sql)
        wire.lose_all() if requests_too else wire.swallow_answers()
        try:
            return execute(sql, params, using=WIRED, timeout=0.5)
        finally:
            wire.heal()

    with wired_database() as wire:
        monkeypatch.setattr(ledger, "execute", over_the_wire)
        yield lost
        monkeypatch.setattr(ledger, "execute", execute)


def is_start(sql: str) -> bool:
    return "WITH gate AS" in sql


def is_finish(sql: str) -> bool:
    return "WITH ended AS" in sql


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("alias", ["none", "database", "redlock"])
def test_a_start_whose_answer_was_lost_is_recognised(
    alias: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the guard the tick may be begun again, and without a grant number nothing but the lease tells who."""
    tick = make_tick(make_schedule(alias=alias, once_per_tick=guarded))
    with lost_replies(monkeypatch, is_start) as lost:
        outcome = run(delivery_of(tick), nothing)
    assert len(lost) == 1
    assert outcome.state is ExecutionState.EXECUTED
    assert Execution.objects.filter(tick=tick).count() == 1
    assert FenceRecord.objects.get(name=tick.lock_name).token == (outcome.execution.token or 0)


def test_a_start_that_never_answers_enters_no_body_and_gives_the_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = make_tick(make_schedule(alias="redis"))
    entered: list[int] = []
    with lost_replies(monkeypatch, is_start, times=2), pytest.raises(LedgerUnavailable):
        run(delivery_of(tick), lambda context: entered.append(1))
    assert not entered
    assert lock_backends["redis"].inspect(tick.lock_name) is None
    clock = Clock()
    assert passes(Reaper(clock), clock, 9) == 1
    assert Tick.objects.get(pk=tick.pk).outcome == "abandoned"


@pytest.mark.parametrize(
    ("raised", "state"), [(None, "executed"), (ValueError("x"), "failed"), (RetryLater(when=60.0), "retried")]
)
def test_a_finish_whose_answer_was_lost_is_no_loss(
    raised: Exception | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = make_tick(make_schedule(alias="redis"))

    def body(context: RunContext) -> None:
        if raised is not None:
            raise raised

    with lost_replies(monkeypatch, is_finish) as lost:
        outcome = run(delivery_of(tick), body)
    assert len(lost) == 1
    assert outcome.state == state
    stored = Execution.objects.get(tick=tick)
    assert (stored.state, stored.returned_as) == (state, "")
    assert Tick.objects.get(pk=tick.pk).attempt == (2 if state == "retried" else 1)


def test_a_lease_whose_grant_was_lost_on_the_way_is_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = make_tick(make_schedule(alias="redis", ttl=60.0))
    with wired_redis("redis") as (backend, wires):
        monkeypatch.setattr(runner, "lock_backends", {"redis": backend})
        warm = backend.acquire("warm-up")  # the server knows the scripts then: one exchange each
        assert warm is not None
        backend.release(warm)
        give_back = backend.withdraw

        def withdraw(name: str, *, lease_id: UUID) -> None:
            for wire in wires:
                wire.heal()  # only the answer to the grant was lost
            give_back(name, lease_id=lease_id)

        monkeypatch.setattr(backend, "withdraw", withdraw)
        _swallow(wires)
        outcome = run(delivery_of(tick), nothing)
    assert outcome.state is ExecutionState.BLOCKED
    assert lock_backends["redis"].inspect(tick.lock_name) is None


def _swallow(wires: list[TcpProxy]) -> None:
    for wire in wires:
        wire.swallow_answers()


def test_a_lease_that_ends_before_the_start_is_sent_claims_nothing() -> None:
    tick = make_tick(make_schedule(alias="database", ttl=0.5))
    with hooked("after-acquire", lambda: threading.Event().wait(0.8)):
        outcome = run(delivery_of(tick), nothing)
    assert outcome.state is ExecutionState.BLOCKED
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED


def test_the_lease_is_still_held_while_the_end_is_written() -> None:
    """The next holder never sees its predecessor running."""
    tick = make_tick(make_schedule(alias="redis"))
    real, held = ledger.end_patiently, []

    def end(*args: Any, **facts: Any) -> bool:
        held.append(lock_backends["redis"].inspect(tick.lock_name))
        return real(*args, **facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "end_patiently", end)
        run(delivery_of(tick), nothing)
    assert held[0] is not None


# Retries and the tick guard


def test_a_refused_retry_waits_although_another_tick_runs() -> None:
    schedule = make_schedule(alias="database")
    other = make_tick(schedule, seconds_ago=10)
    retry = make_tick(schedule, attempt=2, state=TickState.DISPATCHED)

    def body(context: RunContext) -> None:
        assert in_a_thread(lambda: run(delivery_of(retry), nothing)).state is ExecutionState.PREVENTED

    run(delivery_of(other), body)
    assert Tick.objects.get(pk=retry.pk).state == TickState.DISPATCHED


@pytest.mark.parametrize("said", ["refused", "blocked"])
def test_a_copy_of_an_attempt_that_is_over_shortens_no_countdown(said: str) -> None:
    retry = make_tick(make_schedule(), attempt=2, state=TickState.DISPATCHED)
    Tick.objects.update(dispatch_at=database_now() + timedelta(hours=1))
    retry.refresh_from_db()
    late = delivery_of(retry, attempt=1)
    ledger.refused(late, acquire_ms=1) if said == "refused" else ledger.blocked(late, "no answer")
    assert Tick.objects.get(pk=retry.pk).dispatch_at == retry.dispatch_at
    now = delivery_of(retry)
    ledger.refused(now, acquire_ms=1) if said == "refused" else ledger.blocked(now, "no answer")
    assert Tick.objects.get(pk=retry.pk).dispatch_at < retry.dispatch_at


def test_a_retry_that_came_meanwhile_is_not_published_for_the_attempt_that_was_due() -> None:
    tick = make_tick(due_schedule(), queue=QUEUE, attempt=2, state=TickState.DISPATCHED)
    Ticker()._publish_again({tick.id: 1})
    assert queued() == 0
    Ticker()._publish_again({tick.id: 2})
    assert queued() == 1


def test_another_strategy_at_once_shortens_no_countdown() -> None:
    schedule = make_schedule("report", alias="database")
    counting = make_tick(schedule, attempt=2, state=TickState.DISPATCHED)
    waiting = make_tick(schedule, state=TickState.DISPATCHED, seconds_ago=1)
    retarget("report", "redis", now=True, why="x", who="ada")
    before, counting.lock_alias = counting.dispatch_at, ""
    for tick in (counting, waiting):
        tick.refresh_from_db()
    assert counting.dispatch_at == before and waiting.dispatch_at < before
    assert {counting.lock_alias, waiting.lock_alias} == {"redis"}


@pytest.mark.parametrize("said", ["refused", "blocked"])
def test_a_tick_that_was_refused_for_hours_is_refused_once_more(said: str) -> None:
    tick = make_tick(make_schedule(), copies=5_000)
    delivery = delivery_of(tick)
    ledger.refused(delivery, acquire_ms=1) if said == "refused" else ledger.blocked(delivery, "no answer")
    assert Execution.objects.filter(tick=tick).count() == 1


def test_what_a_broker_did_not_take_is_no_copy_and_waits_for_the_broker_only(services: Services) -> None:
    tick = make_tick(due_schedule(), queue=QUEUE, deadline=database_now() + timedelta(hours=1), copies=3)
    ticker = Ticker()
    services.redis["broker"].stop()
    for _ in range(3):
        Tick.objects.update(dispatch_at=database_now())
        ticker._redispatch()
        ticker._publishes_from = 0.0
        tick.refresh_from_db()
        assert tick.copies == 3
        assert (tick.dispatch_at - database_now()).total_seconds() <= conf("BROKER_PAUSE")
    services.restore()
    Tick.objects.update(dispatch_at=database_now())
    ticker._redispatch()
    assert queued() == 1


def test_without_the_guard_an_end_does_not_close_a_tick_that_waits_for_another_attempt() -> None:
    tick = make_tick(make_schedule(alias="none", once_per_tick=False))

    def retries(context: RunContext) -> None:
        raise RetryLater(when=60.0)

    def body(context: RunContext) -> None:
        assert in_a_thread(lambda: run(delivery_of(tick), retries)).state is ExecutionState.RETRIED

    run(delivery_of(tick), body)
    tick.refresh_from_db()
    assert (tick.state, tick.attempt) == (TickState.DISPATCHED, 2)


def test_without_the_guard_an_abandoned_body_is_not_tried_again() -> None:
    execution = dead_execution("database", max_attempts=3, once_per_tick=False)
    clock = Clock()
    passes(Reaper(clock), clock, 9)
    tick = Tick.objects.get(pk=execution.tick_id)
    assert (tick.state, tick.outcome, tick.attempt) == (TickState.CLOSED, "abandoned", 1)


def test_a_tick_whose_last_attempt_never_started_ends_as_its_body_did() -> None:
    tick = make_tick(make_schedule(alias="none"))

    def retries(context: RunContext) -> None:
        raise RetryLater(when=0.0)

    run(delivery_of(tick), retries)
    Tick.objects.update(deadline=database_now() - timedelta(seconds=1))
    Ticker().tend()
    tick.refresh_from_db()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "failed")


def test_a_late_return_is_written_once() -> None:
    execution = dead_execution("none")
    clock = Clock()
    passes(Reaper(clock), clock, 9)
    started = ledger.Started(id=execution.pk, state=ExecutionState.RUNNING, lease_id=execution.lease_id)
    assert not ledger.end(started, ExecutionState.EXECUTED, ran=1.0)
    first = Execution.objects.get(pk=execution.pk)
    assert not ledger.end(started, ExecutionState.FAILED, ran=2.0)
    again = Execution.objects.get(pk=execution.pk)
    assert (again.returned_at, again.returned_as, again.ran) == (first.returned_at, "executed", 1.0)


# What beats do


def test_a_message_carries_its_deadline_and_celerys_count_of_retries() -> None:
    tick = make_tick(due_schedule(), attempt=3, retries=2, queue=QUEUE, dispatch_at=database_now())
    Ticker()._redispatch()
    with app.connection_for_write() as broker:
        message = json.loads(broker.default_channel.client.lindex(QUEUE, 0))
    headers = message["headers"]
    assert headers["retries"] == 2
    assert datetime.fromisoformat(headers["expires"]) == tick.deadline
    assert headers["aegis"]["attempt"] == 3
    instants = dict(instants_in({"headers": headers, "properties": message["properties"]}))
    assert {"expires", "fire_time"} <= instants.keys()
    assert [name for name, instant in instants.items() if instant.utcoffset() is None] == []
    assert json.loads(base64.b64decode(message["body"]))[0] == tick.args


def instants_in(part: Mapping[str, Any]) -> Iterator[tuple[str, datetime]]:
    """All that reads like an instant in what travels, by its name."""
    for name, value in part.items():
        if isinstance(value, dict):
            yield from instants_in(value)
        with suppress(TypeError, ValueError):
            yield name, datetime.fromisoformat(value)


def test_each_copy_of_a_tick_waits_twice_as_long_and_none_is_sent_after_the_deadline() -> None:
    tick = make_tick(due_schedule(), queue=QUEUE, deadline=database_now() + timedelta(hours=1))
    waits = []
    for _ in range(7):
        Tick.objects.update(dispatch_at=database_now())
        Ticker()._redispatch()
        tick.refresh_from_db()
        waits.append(round((tick.dispatch_at - database_now()).total_seconds()))
    assert waits == pytest.approx([10, 20, 40, 80, 160, 300, 300], abs=2)
    Ticker()._redispatch()
    assert queued() == 7
    Tick.objects.update(dispatch_at=database_now(), deadline=database_now() - timedelta(seconds=1))
    Ticker()._redispatch()
    assert queued() == 7


def test_what_fell_into_a_pause_with_an_end_is_not_filled_in() -> None:
    schedule = due_schedule()
    now = database_now()
    Schedule.objects.update(paused_at=now - timedelta(seconds=9), paused_until=now - timedelta(seconds=3))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET activated_at = %s", [now - timedelta(seconds=20)])
    times = [tick.fire_time for tick in mint().ticks]
    assert 2 <= len(times) <= 8
    assert min(times) > now - timedelta(seconds=3)
    assert run(delivery_of(Tick.objects.filter(schedule=schedule)[0]), nothing).state is ExecutionState.EXECUTED


def test_a_clock_set_back_stores_no_fire_time_twice() -> None:
    due_schedule()
    before = mint().ticks
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET next_fire_at = next_fire_at - interval '6 s'")
    again = mint().ticks
    assert Tick.objects.count() == len(before) + len(again)
    assert {tick.fire_time for tick in before}.isdisjoint(tick.fire_time for tick in again)


def test_a_run_that_was_asked_for_survives_the_pause_of_its_schedule() -> None:
    schedule = make_schedule()
    tick_id = manual.request_run(schedule)
    Schedule.objects.update(paused_at=database_now(), paused_until=None)
    Ticker()._close_switched_off()
    assert run(delivery_of(Tick.objects.get(pk=tick_id)), nothing).state is ExecutionState.EXECUTED


def test_a_revoked_message_does_not_close_a_tick_that_has_begun() -> None:
    tick = make_tick(make_schedule())

    def body(context: RunContext) -> None:
        execute(dispatch.REVOKE, {"tick": tick.pk, "attempt": 1, "reason": "revoked"})

    run(delivery_of(tick), body)
    assert Tick.objects.get(pk=tick.pk).outcome == "executed"


def test_activation_inside_a_repeated_hour_fills_nothing_in() -> None:
    """New York, 1 November 2026: 01:30 comes at 05:30Z and again at 06:30Z; the edit falls in the second hour."""
    schedule = make_schedule(cron_expression="30 1 * * *", time_zone="America/New_York", queue=QUEUE)
    activated = datetime(2026, 11, 1, 6, 0, tzinfo=UTC)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET activated_at = %s, next_fire_at = NULL", [activated])
    assert mint(now=activated + timedelta(minutes=10)).ticks == ()
    schedule.refresh_from_db()
    assert not Tick.objects.exists()
    assert schedule.next_fire_at is not None
    assert schedule.next_fire_at > activated + timedelta(minutes=10)


def test_callers_of_one_name_do_not_starve_the_schedule_that_shares_it() -> None:
    """Callers stamp their alias under a shared lock of the name; a beat that meets it comes again."""
    due_schedule("busy", lock_name="shared")
    stop = threading.Event()

    def call() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            manual._make(
                name="shared", alias="database", key=None, task="t", args=[], kwargs={}, ttl=1.0, patience=60.0
            )
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        tries = 0
        while not Tick.objects.filter(schedule__isnull=False).exists():
            tries += 1
            assert tries < 100
            mint()
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def test_a_heartbeat_that_comes_while_the_store_is_asked_saves_the_execution() -> None:
    """R4: the reaper's UPDATE compares the heartbeat that it has judged by."""
    execution = dead_execution("database")

    class Asking(Reaper):
        def _held(self, name: str, alias: str, lease_id: Any) -> bool | None:
            assert ledger.beat_hearts([execution.pk]) == {execution.pk}
            return super()._held(name, alias, lease_id)

    clock = Clock()
    assert passes(Asking(clock), clock, 20) == 0
    execution.refresh_from_db()
    assert execution.state == "running"


def test_a_commit_that_takes_its_time_does_not_silence_the_other_bodies_of_its_process() -> None:
    slow, other = dead_execution("database"), dead_execution("redis", name="other")
    with transaction.atomic():
        Execution.objects.select_for_update().get(pk=slow.pk)
        assert in_a_thread(lambda: ledger.beat_hearts([slow.pk, other.pk])) == {other.pk}
    assert ledger.beat_hearts([slow.pk, other.pk]) == {slow.pk, other.pk}


def test_without_the_guard_a_tick_given_back_is_not_closed_by_its_own_other_body() -> None:
    """A body of the same tick is no evidence against it."""
    tick = make_tick(make_schedule(alias="database", once_per_tick=False))

    def body(context: RunContext) -> None:
        Tick.objects.filter(pk=tick.pk).update(state=TickState.DISPATCHED)  # as a start that came too late does
        assert in_a_thread(lambda: run(delivery_of(tick), nothing)).state is ExecutionState.PREVENTED
        assert Tick.objects.get(pk=tick.pk).state == TickState.DISPATCHED

    assert run(delivery_of(tick), body).state is ExecutionState.EXECUTED


def test_marking_as_dispatched_does_not_take_back_a_start() -> None:
    tick = make_tick(due_schedule(alias="none"), queue=QUEUE, dispatch_at=database_now())
    lease = lock_backends["none"].acquire(tick.lock_name)
    assert lease is not None
    fast = [lambda: ledger.begin(delivery_of(tick), lease, acquire_ms=0.0, fenced=False)]
    with hooked("after-publish", lambda: fast.pop()() if fast else None):
        Ticker()._redispatch()
    assert Tick.objects.get(pk=tick.pk).state == TickState.STARTED
