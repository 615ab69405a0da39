"""The engine under the strategies whose lease is a session of PostgreSQL, when that session ends."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connections

from locks import LeaseLost, lock_backends
from locks.backends.advisory import key_of
from scheduler.context import RunContext
from scheduler.models import Execution, Tick
from scheduler.reaper import Reaper
from scheduler.runner import Outcome, run
from scheduler.states import ExecutionState, TickState
from tests.integration.test_runner import in_a_thread, nothing, row
from tests.integration.test_ticker import Clock, dead_execution, passes
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

BOTH = pytest.mark.parametrize("alias", ["advisory", "row_lock"])


def raw_session() -> psycopg.Connection:
    params = connections["default"].get_connection_params()
    params.pop("cursor_factory")
    return psycopg.connect(**params, autocommit=True)


def end_session(alias: str, name: str) -> None:
    """End the session of PostgreSQL that holds the name, as an operator would who knows nothing of Aegis."""
    shown = lock_backends[alias].inspect(name)
    assert shown is not None
    with raw_session() as other:
        ended = other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE starts_with(application_name, %s)",
            [f"aegis {shown.lease_id}"],
        ).fetchall()
    assert ended == [(True,)]


@BOTH
def test_a_body_whose_session_was_ended_is_told_and_is_lost(alias: str) -> None:
    tick = make_tick(make_schedule(alias=alias, ttl=1.0))

    def body(context: RunContext) -> None:
        end_session(alias, context.lock_name)
        stop = threading.Event()
        for _ in range(500):
            context.check()
            stop.wait(0.02)

    outcome = run(delivery_of(tick), body)
    assert outcome.state is ExecutionState.LOST
    assert isinstance(outcome.returned.raised, LeaseLost)  # type: ignore[union-attr]


@BOTH
def test_a_session_ended_between_the_last_renewal_and_the_end_is_seen_before_the_result_counts(alias: str) -> None:
    tick = make_tick(make_schedule(alias=alias, ttl=600.0))
    outcome = run(delivery_of(tick), lambda context: end_session(alias, context.lock_name))
    assert outcome.state is ExecutionState.LOST
    assert row(outcome).reason == "the lease was not ours any more when the body had returned"


@BOTH
def test_a_session_ended_before_the_start_does_not_let_two_bodies_write(alias: str) -> None:
    """Worker 0 acquires and its session ends; worker 1 acquires, starts and ends; worker 0 goes on.

    Grants of `advisory` are numbered, so the stale start is refused. Those of `row_lock` are not: it starts, and is
    seen as lost before its result counts.
    """
    from scheduler.failpoints import hooked

    schedule = make_schedule(alias=alias, ttl=600.0)
    stale, fresh = make_tick(schedule, seconds_ago=5), make_tick(schedule)

    def overtake() -> None:
        end_session(alias, schedule.lock_id)
        assert in_a_thread(lambda: run(delivery_of(fresh), nothing)).state is ExecutionState.EXECUTED

    calls = iter([overtake])
    with hooked("after-acquire", lambda: next(calls, lambda: None)()):
        outcome = run(delivery_of(stale), nothing)
    assert outcome.state is (ExecutionState.PREVENTED if alias == "advisory" else ExecutionState.LOST)


@BOTH
def test_a_retried_delivery_of_a_held_name_is_refused_and_runs_later(alias: str) -> None:
    schedule = make_schedule(alias=alias)
    tick = make_tick(schedule)
    ghost = lock_backends[alias].acquire(schedule.lock_id)
    assert ghost is not None
    assert run(delivery_of(tick), nothing).state is ExecutionState.PREVENTED
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED
    assert lock_backends[alias].release(ghost) is True
    assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED


def test_the_reaper_leaves_what_is_held_by_a_session_it_cannot_name() -> None:
    """Unknown is never "gone": the name is held, and it cannot be told that it is not by this execution."""
    execution = dead_execution("advisory")
    clock = Clock()
    reaper = Reaper(clock)
    with raw_session() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [key_of(execution.lock_name)])
        assert passes(reaper, clock, 20) == 0
    wait_until(lambda: lock_backends["advisory"].inspect(execution.lock_name) is None, message="the name is free")
    assert passes(reaper, clock, 2) == 1
    assert Execution.objects.get(pk=execution.pk).state == "abandoned"


@BOTH
def test_a_run_leaves_no_session_behind(alias: str) -> None:
    from locks.backends import session_registry

    before = session_registry.held_sessions()
    outcomes: list[Outcome] = [
        run(delivery_of(make_tick(make_schedule(f"n{n}", alias=alias))), nothing) for n in range(3)
    ]
    assert {outcome.state for outcome in outcomes} == {ExecutionState.EXECUTED}
    assert session_registry.held_sessions() == before
