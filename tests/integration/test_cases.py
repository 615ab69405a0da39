"""Reports from elsewhere, tried on the engine: what no other test shows yet. All of them: ``tests/cases.md``."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction

from locks import LockNotAcquired, exclusive, lock_backends
from scheduler import ledger, manual, runner
from scheduler.context import RunContext
from scheduler.failpoints import hooked
from scheduler.minting import mint
from scheduler.models import Execution, Schedule, Tick
from scheduler.reaper import Reaper
from scheduler.runner import run
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.contract.wires import wired_redis
from tests.integration.test_runner import ALL, GUARDED, in_a_thread, nothing, row
from tests.integration.test_ticker import QUEUE, Clock, due_schedule, empty_queue, passes  # noqa: F401
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


# Deliveries


@pytest.mark.parametrize("alias", GUARDED)
def test_refused_deliveries_free_nothing(alias: str) -> None:
    """The second is refused, and the third must not get in because the second has cleaned up."""
    schedule = make_schedule(alias=alias)
    inside, second, third = (make_tick(schedule, seconds_ago=n) for n in (30, 20, 10))

    def body(context: RunContext) -> None:
        for tick in (second, third):
            assert in_a_thread(lambda t=tick: run(delivery_of(t), nothing)).state is ExecutionState.PREVENTED
        assert lock_backends[alias].inspect(schedule.lock_id) is not None

    assert run(delivery_of(inside), body).state is ExecutionState.EXECUTED


def test_a_name_that_stays_held_is_asked_for_with_growing_pauses() -> None:
    tick = make_tick(make_schedule(), deadline=database_now() + timedelta(hours=1), queue=QUEUE)
    ghost = lock_backends["database"].acquire(tick.lock_name, ttl=60)
    assert ghost is not None
    pauses = []
    for copies in range(6):
        Tick.objects.update(copies=copies, dispatch_at=database_now() + timedelta(minutes=9))
        refused = row(run(delivery_of(tick), nothing))
        tick.refresh_from_db()
        pauses.append(round((tick.dispatch_at - refused.recorded_at).total_seconds()))
    assert pauses == [1, 2, 4, 8, 15, 15]
    lock_backends["database"].release(ghost)


def test_a_tick_whose_every_attempt_is_killed_ends_after_its_attempts_and_the_next_one_runs() -> None:
    schedule = make_schedule(alias="database", max_attempts=2)
    tick = make_tick(schedule, seconds_ago=5)
    for attempt in (1, 2):
        tick.refresh_from_db()
        assert tick.attempt == attempt
        lease = lock_backends["database"].acquire(tick.lock_name)
        assert lease is not None
        ledger.begin(delivery_of(tick), lease, acquire_ms=0.0, fenced=True)
        lock_backends["database"].release(lease)  # as when its TTL is over: nobody is alive to finish
        clock = Clock()
        assert passes(Reaper(clock), clock, 9) == 1
    tick.refresh_from_db()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "abandoned")
    assert list(Execution.objects.values_list("state", flat=True)) == ["abandoned"] * 2
    assert run(delivery_of(make_tick(schedule)), nothing).state is ExecutionState.EXECUTED


def test_a_run_that_was_asked_for_right_after_a_short_one_is_a_run_of_its_own() -> None:
    """One at a time is the lock's business, once is the tick's: an hourly tick has run, and somebody asks again."""
    schedule = make_schedule(every_seconds=3600)
    first = make_tick(schedule)
    assert run(delivery_of(first), nothing).state is ExecutionState.EXECUTED
    asked = Tick.objects.get(pk=manual.request_run(schedule))
    assert run(delivery_of(asked), nothing).state is ExecutionState.EXECUTED
    assert asked.manual_key is not None and Tick.objects.get(pk=first.pk).manual_key is None
    assert not Execution.objects.filter(ended_at__isnull=True).exists()


def test_an_error_of_the_body_is_what_is_kept_when_the_release_fails_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tick = make_tick(make_schedule(alias="redis", ttl=2.0))
    with wired_redis("redis") as (backend, (wire,)):
        monkeypatch.setattr(runner, "lock_backends", {"redis": backend})

        def body(context: RunContext) -> None:
            raise ValueError("no such region")

        with hooked("before-release", wire.cut):
            outcome = run(delivery_of(tick), body)
    assert (outcome.state, row(outcome).error) == (ExecutionState.FAILED, "ValueError: no such region")
    assert any(getattr(record, "action", "") == "release_failed" for record in caplog.records)
    assert lock_backends["redis"].inspect(tick.lock_name) is not None  # until its TTL is over


@pytest.mark.parametrize("alias", ALL)
def test_healthy_runs_log_nothing_to_act_on(alias: str, caplog: pytest.LogCaptureFixture) -> None:
    schedule = make_schedule(alias=alias)
    for number in range(20):
        tick = make_tick(schedule, seconds_ago=100 - number)
        assert run(delivery_of(tick), lambda context: threading.Event().wait(0.02)).state is ExecutionState.EXECUTED
    assert [record.getMessage() for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


# Transactions around it


def test_a_refusal_inside_a_transaction_leaves_the_transaction_usable() -> None:
    schedule = make_schedule()
    with transaction.atomic():
        Schedule.objects.filter(pk=schedule.pk).update(notes="kept")
        with pytest.raises(RuntimeError, match="atomic"), exclusive("cases.atomic", using="database"):
            pytest.fail("entered")
        assert Schedule.objects.get().notes == "kept"
    assert Schedule.objects.get().notes == "kept"


def test_edits_of_different_schedules_do_not_wait_for_each_other() -> None:
    """Also where they share a lock name, and each request is a transaction."""
    first, second = make_schedule("first", lock_name="shared"), make_schedule("second", lock_name="shared")

    def edit() -> str:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '1s'")
            second.notes = "changed"
            second.save()
        return "saved"

    with transaction.atomic():
        first.every_seconds, first.once_at = 60, None
        first.save()
        assert in_a_thread(edit) == "saved"


def test_a_beat_overwrites_no_edit_and_survives_a_deletion_under_its_hands() -> None:
    edited, deleted = due_schedule("edited", kwargs={"old": 1}), due_schedule("deleted")

    def meanwhile() -> None:
        Schedule.objects.filter(pk=edited.pk).update(kwargs={"new": 2}, enabled=False)
        Schedule.objects.filter(pk=deleted.pk).delete()

    with hooked("after-mint", meanwhile):
        Ticker().tick()
    Ticker().tick()
    edited.refresh_from_db()
    assert (edited.kwargs, edited.enabled) == ({"new": 2}, False)
    assert not Schedule.objects.filter(pk=deleted.pk).exists()
    assert not Tick.objects.filter(state__in=[TickState.PLANNED, TickState.DISPATCHED]).exists()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_another_isolation_level_of_the_project_leaves_no_run_open(level: str) -> None:
    """Leases and the ledger have connections of their own, at READ COMMITTED. (A guard refuses another level.)"""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        name = cursor.fetchone()[0]
        cursor.execute(f'ALTER DATABASE "{name}" SET default_transaction_isolation = "{level}"')
    connection.close()
    try:
        schedule = due_schedule("isolated")
        threads = [threading.Thread(target=_pass_and_close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        mint()
        for tick in Tick.objects.filter(schedule=schedule).exclude(state=TickState.MISFIRED):
            run(delivery_of(tick), nothing)
        assert Execution.objects.exists() and not Execution.objects.exclude(state="executed").exists()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" RESET default_transaction_isolation')
        connection.close()


def _pass_and_close() -> None:
    """A pass leaves out a step that the database refused to serialize."""
    try:
        Ticker().tick()
    finally:
        connection.close()


def test_a_decorated_function_of_a_module_is_one_acquisition_a_call() -> None:
    """The object is shared by all threads; what proves ownership belongs to the call."""
    shared, gate = exclusive("cases.shared", using="database"), threading.Barrier(2)
    entered: list[str] = []

    @shared
    def body() -> None:
        entered.append("in")
        gate.wait(10)
        gate.wait(10)

    thread = threading.Thread(target=body)
    thread.start()
    gate.wait(10)
    with pytest.raises(LockNotAcquired):
        body()
    assert lock_backends["database"].inspect("cases.shared") is not None
    gate.wait(10)
    thread.join(10)
    assert entered == ["in"] and lock_backends["database"].inspect("cases.shared") is None
