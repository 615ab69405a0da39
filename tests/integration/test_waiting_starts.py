"""A start that finds the fence locked by a guard that takes its time: it waits for as long as its lease is good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from locks import LockNotAcquired, lock_backends
from locks.connection import execute
from scheduler import RunContext, exclusive_task, ledger
from scheduler.dashboard.header import Stores, header
from scheduler.exceptions import LedgerUnavailable
from scheduler.models import Execution, LockName, Tick
from scheduler.runner import Outcome, run
from scheduler.states import ExecutionState, TickState
from tests.integration.test_attack_statements import is_start, lost_replies
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.loss import in_a_thread, take_lease_away

pytestmark = pytest.mark.django_db(transaction=True)

SHORT = 1.5  # seconds of a lease that ends while its start waits
WAITING = """
SELECT query_start::text FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%WITH gate AS%%'
"""


@contextmanager
def fence_locked(name: str) -> Iterator[None]:
    """As by a guard of a former holder that is busy in the database."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM aegis_locks_fence WHERE name = %s FOR KEY SHARE", [name])
            assert cursor.fetchone()
        yield


def await_starts(count: int) -> None:
    """Until so many statements of a start have waited, one after the other."""
    seen: set[str] = set()

    def enough() -> bool:
        seen.update(row[0] for row in execute(WAITING, {}))
        return len(seen) >= count

    wait_until(enough, timeout=30, message=f"{count} starts have waited")


def in_the_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(in_a_thread(call)))
    thread.start()
    return thread, answers


@exclusive_task(lock="database", lock_name="tests.waiting", ttl=SHORT)
def called(context: RunContext) -> str:
    return "ran"


def test_a_start_waits_for_a_guard_that_takes_its_time() -> None:
    schedule = make_schedule(ttl=30.0)
    first, second = make_tick(schedule, seconds_ago=9), make_tick(schedule)
    later: list[Any] = []

    def body(context: RunContext) -> None:
        with context.commit_guard():
            take_lease_away("database", schedule.lock_id)
            later.extend(in_the_background(lambda: run(delivery_of(second), lambda context: None)))
            await_starts(4)

    run(delivery_of(first), body)
    thread, answers = later
    thread.join(60)
    assert answers[0].state is ExecutionState.EXECUTED


def test_a_start_whose_lease_ends_while_it_waits_is_blocked_and_comes_again() -> None:
    schedule = make_schedule(ttl=SHORT)
    tick = make_tick(schedule)
    entered: list[int] = []
    with fence_locked(schedule.lock_id):
        outcome: Outcome = in_a_thread(lambda: run(delivery_of(tick), lambda context: entered.append(1)))
    stored = Execution.objects.get()
    assert not entered
    assert outcome.state is ExecutionState.BLOCKED and stored.state == "blocked"
    assert "guard" in stored.reason and stored.acquire_ms is not None
    again = Tick.objects.get()
    assert again.state == TickState.PLANNED
    assert header().stores == Stores(ok=("database",))  # which has granted the lease
    assert (again.dispatch_at - stored.recorded_at).total_seconds() < 2  # not when its next copy was due
    assert lock_backends["database"].inspect(schedule.lock_id) is None
    assert run(delivery_of(again), lambda context: None).state is ExecutionState.EXECUTED


def test_a_start_whose_tick_is_closed_while_it_waits_is_late_and_no_duplicate() -> None:
    """By a copy of its own message, which is refused while the former run is inside."""
    schedule = make_schedule(ttl=30.0)
    first, second = make_tick(schedule, seconds_ago=9), make_tick(schedule)
    later: list[Any] = []

    def body(context: RunContext) -> None:
        with context.commit_guard():
            take_lease_away("database", schedule.lock_id)
            later.extend(in_the_background(lambda: run(delivery_of(second), lambda context: None)))
            await_starts(1)
            copy: Outcome = in_a_thread(lambda: run(delivery_of(second), lambda context: None))
            assert copy.state is ExecutionState.PREVENTED

    run(delivery_of(first), body)
    thread, answers = later
    thread.join(60)
    assert Tick.objects.get(pk=second.pk).outcome == "prevented"
    assert answers[0].state is ExecutionState.LATE and "closed without a run" in answers[0].execution.reason


@pytest.mark.parametrize("alias", ["optimistic", "advisory", "row_lock"])
def test_a_lease_without_an_end_of_its_own_is_waited_with_for_its_ttl(alias: str) -> None:
    schedule = make_schedule(alias=alias, ttl=SHORT)
    tick = make_tick(schedule)
    with fence_locked(schedule.lock_id):
        outcome: Outcome = in_a_thread(lambda: run(delivery_of(tick), lambda context: None))
    assert outcome.state is ExecutionState.BLOCKED


def test_a_caller_that_was_refused_is_not_surprised_by_a_run() -> None:
    LockName.objects.create(name="tests.waiting", alias_wanted="database", alias_in_force="database")

    def call() -> Exception:
        with pytest.raises(LockNotAcquired, match="guard") as refused:
            called()
        return refused.value

    with fence_locked("tests.waiting"):
        in_a_thread(call)
    tick = Tick.objects.get()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "blocked")


def test_a_start_that_may_have_happened_is_never_said_to_be_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first answer was lost, and then the fence was locked until the lease had ended."""
    schedule = make_schedule(ttl=SHORT)
    tick = make_tick(schedule)
    locked: list[Any] = []

    def over_the_wire(sql: str, params: Any = None) -> Any:
        try:
            return lossy(sql, params)
        except Exception:
            if is_start(sql) and not locked:
                locked.append(fence_locked(schedule.lock_id))
                locked[0].__enter__()
            raise

    with lost_replies(monkeypatch, is_start):
        lossy = ledger.execute
        monkeypatch.setattr(ledger, "execute", over_the_wire)
        try:
            with pytest.raises(LedgerUnavailable):
                run(delivery_of(tick), lambda context: None)
        finally:
            locked[0].__exit__(None, None, None)
    assert Execution.objects.get().state == "running"  # for the reaper


def test_a_start_that_comes_in_late_renews_its_lease_before_it_ends() -> None:
    schedule = make_schedule(ttl=9.0)
    tick = make_tick(schedule)

    def body(context: RunContext) -> None:
        wait_until(lambda: context.kept.renewals or context.lost, timeout=30, message="the lease is renewed or over")
        context.check()

    with fence_locked(schedule.lock_id):
        thread, answers = in_the_background(lambda: run(delivery_of(tick), body))
        await_starts(8)  # a second each: less is left than a third of the ttl
    thread.join(60)
    assert answers[0].state is ExecutionState.EXECUTED
