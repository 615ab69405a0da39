"""The engine under hostile rows, bodies and callers: what one bad value may cost, and whom."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import override_settings
from kombu import Queue

from aegis_site.celery import app
from locks import LockNotAcquired, exclusive
from scheduler import RunContext, exclusive_task
from scheduler.exceptions import InvalidExclusiveTask
from scheduler.minting import mint
from scheduler.models import Execution, LockName, Schedule, Tick
from scheduler.runner import run
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.integration.test_runner import in_a_thread
from tests.integration.test_ticker import due_schedule, empty_queue, queued  # noqa: F401
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def this_app() -> None:
    app.set_current()


@exclusive_task(lock="database", lock_name="tests.echo")
def echo(context: RunContext, *args: Any) -> Any:
    return args


@exclusive_task(lock="database", lock_name="tests.nested")
def nested(context: RunContext, depth: int) -> str:
    return nested(depth - 1) if depth else "bottom"


def sql(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


# The beat's pass


def test_a_paused_schedule_does_not_make_beats_spin() -> None:
    schedule = make_schedule(every_seconds=3600)
    Schedule.objects.filter(pk=schedule.pk).update(paused_at=database_now())
    assert Ticker().tick() == 1.0


def test_an_alias_in_force_that_left_the_settings_marks_only_its_own_schedule() -> None:
    orphan, good = due_schedule("orphan", alias="redis"), due_schedule("good")
    make_tick(orphan, seconds_ago=100, deadline=database_now() + timedelta(hours=1))  # keeps redis in force
    LockName.objects.filter(name=orphan.lock_id).update(alias_wanted="database")
    from django.conf import settings

    left = {alias: params for alias, params in settings.LOCKS.items() if alias != "redis"}
    with override_settings(LOCKS=left):
        Ticker().tick()
    orphan.refresh_from_db()
    assert "redis" in orphan.broken_reason
    assert Tick.objects.filter(schedule=good).exists()


@pytest.mark.parametrize("grace", [1e12, 1e300, float("inf"), float("nan")])
def test_a_grace_beyond_the_calendar_marks_only_its_own_schedule(grace: float) -> None:
    endless, good = due_schedule("endless"), due_schedule("good")
    sql("UPDATE aegis_scheduler_schedule SET misfire_grace = %s WHERE id = %s", grace, endless.pk)
    Ticker().tick()
    endless.refresh_from_db()
    assert endless.broken_reason
    assert Tick.objects.filter(schedule=good).exists()


def test_a_tick_that_cannot_be_published_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = make_tick(due_schedule("nowhere"), queue="no-such-queue", dispatch_at=database_now())
    good = make_tick(due_schedule("good"), queue="aegis-test-ticker", dispatch_at=database_now())
    queues = app.amqp.Queues([Queue("aegis-test-ticker")], create_missing=False)
    # Both are made once for each app, and the router keeps the queues that it was made with.
    monkeypatch.setitem(app.amqp.__dict__, "queues", queues)
    monkeypatch.setitem(app.amqp.__dict__, "router", app.amqp.Router(queues=queues))
    Ticker()._redispatch()
    assert queued() == 1
    for tick in (bad, good):
        tick.refresh_from_db()
    assert (bad.state, good.state) == (TickState.PLANNED, TickState.DISPATCHED)


def test_a_lock_name_held_by_an_open_transaction_holds_up_only_its_own_schedule() -> None:
    held, good = due_schedule("held"), due_schedule("good")
    with transaction.atomic():
        list(LockName.objects.filter(pk=held.lock_id).select_for_update())
        in_a_thread(lambda: mint() or True)
        assert not in_a_thread(lambda: (Tick.objects.filter(schedule=held).exists(),))[0]
        assert in_a_thread(lambda: (Tick.objects.filter(schedule=good).exists(),))[0]
    mint()
    assert Tick.objects.filter(schedule=held).exists()


# What bodies raise


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "raised",
    [
        ValueError("a\x00b"),
        ValueError("\ud800"),
        UnprintableError(),
        ValueError("%s ' \" ä %(x)s"),
        ValueError("x" * 100_000),
    ],
    ids=["nul", "surrogate", "unprintable", "quotes", "huge"],
)
@override_settings(AEGIS={"FINISH_PATIENCE": 0.5})
def test_whatever_a_body_raises_is_recorded_as_failed(raised: Exception) -> None:
    tick = make_tick(make_schedule())

    def body(context: RunContext) -> None:
        raise raised

    outcome = run(delivery_of(tick), body)
    stored = Execution.objects.get(pk=outcome.execution.id)
    assert stored.state == "failed"
    assert type(raised).__name__ in stored.error


@pytest.mark.parametrize(
    "message",
    [
        "cannot reach postgres://app:s3cret-word@db.example/prod",
        "redis://:s3cret-word@cache:6379/0 refused",
        "connection failed: host=db user=app password=s3cret-word dbname=prod",
        "connection failed: password='s3cret-word' host=db",
    ],
)
def test_a_password_in_an_error_is_not_stored(message: str) -> None:
    tick = make_tick(make_schedule())

    def body(context: RunContext) -> None:
        raise ConnectionError(message)

    stored = Execution.objects.get(pk=run(delivery_of(tick), body).execution.id)
    assert "s3cret-word" not in stored.error
    assert "ConnectionError" in stored.error


# Callers


def test_a_task_that_calls_itself_is_refused_and_never_said_to_have_executed() -> None:
    tick = make_tick(make_schedule(task=nested.name, args=[1], lock_name="tests.nested"))
    from scheduler.delivery import HEADER, stamp

    nested.push_request(
        id="x",
        headers={HEADER: stamp(tick)},
        called_directly=False,
        is_eager=False,
        hostname="w@test",
        args=[1],
        kwargs={},
    )
    try:
        with pytest.raises(LockNotAcquired):
            nested(1)
    finally:
        nested.pop_request()
    ran = Execution.objects.get(tick=tick, began=True)
    assert ran.state == "failed"


def test_a_direct_call_that_was_refused_does_not_run_later() -> None:
    with exclusive("tests.echo", using="database"), pytest.raises(LockNotAcquired):
        echo("x")
    tick = Tick.objects.get()
    assert tick.state == TickState.CLOSED and tick.outcome == "prevented"


def test_a_direct_call_inside_a_transaction_is_refused_and_does_not_run_later() -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match=r"atomic"):
        echo("x")
    assert not Tick.objects.filter(state__in=[TickState.PLANNED, TickState.DISPATCHED]).exists()


def test_arguments_that_celerys_json_carries_are_carried() -> None:
    when, number = datetime(2026, 1, 1, tzinfo=UTC), uuid4()
    assert echo(when, number) == (when, number)


@pytest.mark.parametrize("argument", ["a\x00b", float("nan"), object(), "\ud800"])
def test_arguments_that_cannot_be_stored_are_the_callers_error(argument: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        echo(argument)
    assert not Tick.objects.exists()


def test_a_copy_of_an_unstamped_message_does_not_take_the_retry_before_its_countdown() -> None:
    from scheduler.body import RetryLater
    from scheduler.manual import adopt

    def again(context: RunContext) -> None:
        raise RetryLater(when=60.0)

    first = adopt(echo, key="one-id", args=("x",), kwargs={}, worker="w@test")
    assert run(first, again).state is ExecutionState.RETRIED
    copy = adopt(echo, key="one-id", args=("x",), kwargs={}, worker="w@test")
    assert run(copy, lambda context: None).state is ExecutionState.DUPLICATE
    assert Tick.objects.get().attempt == 2


def test_a_task_whose_name_is_no_lock_name_says_what_it_needs() -> None:
    @exclusive_task(lock="database", name="tests.d'été 100%")
    def summer(context: RunContext) -> None: ...

    with pytest.raises(ValueError, match="needs a lock_name"):
        summer()
    with pytest.raises(InvalidExclusiveTask, match="Invalid lock name"):
        exclusive_task(lock_name="Ä")(lambda context: None)
    with pytest.raises(InvalidExclusiveTask, match="Invalid ttl"):
        exclusive_task(ttl=-1)(lambda context: None)


def test_names_with_quotes_percent_signs_and_other_alphabets() -> None:
    name = 'Übergabe d\'été 100% \\ "x" 夜'
    schedule = due_schedule(name, lock_name="lock.quoted", args=["%s %(name)s ' ; -- 夜"], kwargs={"k'%": "v"})
    Ticker().tick()
    assert Tick.objects.filter(schedule_name=name, state=TickState.DISPATCHED).exists()
    outcome = run(delivery_of(Tick.objects.filter(schedule=schedule)[0]), lambda context: context.schedule)
    assert outcome.returned is not None and outcome.returned.value == name


# Races


def test_settling_and_starting_at_once_never_both_win() -> None:
    schedule = make_schedule(alias="none")
    for round_ in range(30):
        deadline = database_now() + timedelta(milliseconds=round_)
        tick = make_tick(schedule, seconds_ago=1000 + round_, deadline=deadline)
        gate = threading.Barrier(2)
        settle = threading.Thread(target=lambda g=gate: (g.wait(10), Ticker()._settle(), connection.close()))
        settle.start()
        gate.wait(10)
        outcome = run(delivery_of(tick), lambda context: None)
        settle.join(30)
        wait_until(lambda at=deadline: database_now() > at, message="the deadline has passed")
        Ticker()._settle()  # the other one leaves a tick that a start has locked to the next pass
        tick.refresh_from_db()
        if outcome.state is ExecutionState.EXECUTED:
            assert tick.outcome == "executed"
        else:
            assert tick.state == TickState.MISFIRED


def test_refusal_and_close_under_many_threads_loses_no_tick_and_runs_none_twice() -> None:
    schedule = make_schedule(alias="database")
    ticks = [make_tick(schedule, seconds_ago=10 + n) for n in range(8)]
    nap = threading.Event()

    def body(context: RunContext) -> None:
        nap.wait(0.01)

    def worker(order: list[Tick]) -> None:
        try:
            for tick in order:
                run(delivery_of(tick), body)
        finally:
            connection.close()

    threads = [threading.Thread(target=worker, args=(ticks[n:] + ticks[:n],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for tick in Tick.objects.prefetch_related("executions"):
        bodies = [e for e in tick.executions.all() if e.began]
        assert len(bodies) == (1 if tick.outcome == "executed" else 0)
        if tick.outcome == "prevented":
            assert "held by execution" in tick.reason
        assert tick.state in (TickState.CLOSED, TickState.PLANNED)
    spans = sorted(Execution.objects.filter(began=True).values_list("started_at", "ended_at"))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_two_beats_that_mint_under_one_name_never_stamp_two_strategies() -> None:
    first, second = (
        due_schedule("first", alias="redis", lock_name="shared"),
        due_schedule("second", lock_name="shared"),
    )
    for wanted in ("database", "redis", "optimistic", "database"):
        Tick.objects.all().delete()
        LockName.objects.update(alias_wanted=wanted)
        for schedule in (first, second):
            sql(
                "UPDATE aegis_scheduler_schedule SET next_fire_at = NULL,"
                " activated_at = clock_timestamp() - interval '5 s' WHERE id = %s",
                schedule.pk,
            )
        gate = threading.Barrier(2)

        def beat(gate: threading.Barrier = gate) -> None:
            gate.wait(10)
            try:
                mint()
            finally:
                connection.close()

        threads = [threading.Thread(target=beat) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(set(Tick.objects.values_list("lock_alias", flat=True))) == 1


def test_a_switch_of_strategy_and_a_direct_call_at_once() -> None:
    """The call stamps its alias under the lock name's row lock: one of the two waits for the other."""
    LockName.objects.create(name="tests.echo", alias_wanted="database", alias_in_force="database")
    schedule = due_schedule("cron", lock_name="tests.echo")
    for wanted in ("redis", "database", "redis", "database"):
        LockName.objects.update(alias_wanted=wanted)
        sql(
            "UPDATE aegis_scheduler_schedule SET next_fire_at = NULL,"
            " activated_at = clock_timestamp() - interval '5 s' WHERE id = %s",
            schedule.pk,
        )
        caller = threading.Thread(target=_call_quietly)
        caller.start()
        mint()
        caller.join(30)
        open_now = Tick.objects.filter(state__in=["planned", "dispatched", "started"])
        assert len(set(open_now.values_list("lock_alias", flat=True))) <= 1
        open_now.delete()


def _call_quietly() -> None:
    try:
        echo("x")
    except LockNotAcquired:
        pass
    finally:
        connection.close()
