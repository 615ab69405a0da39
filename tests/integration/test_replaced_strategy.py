"""A run whose strategy was replaced at once: what the reaper does where the old store says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.ledger import beat_hearts
from scheduler.models import Execution, LockName, Schedule, Tick
from scheduler.reaper import Reaper
from scheduler.retargeting import retarget
from scheduler.runner import run
from scheduler.states import ExecutionState, TickState
from tests.integration.test_overlap import waiting_beside
from tests.integration.test_ticker import Clock, dead_execution, passes
from tests.support.engine import delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

TTL = 3.0  # after which a silence of TTL + SILENCE_GRACE is one of nine seconds, seen by the tenth pass
BEFORE = 9


def leave_locks(settings: Any) -> None:
    settings.LOCKS = {alias: entry for alias, entry in settings.LOCKS.items() if alias != "redis"}


def stop_answering(settings: Any) -> None:
    settings.LOCKS = {**settings.LOCKS, "redis": {**settings.LOCKS["redis"], "LOCATION": "redis://127.0.0.1:1/0"}}


def replace_strategy() -> None:
    retarget("nightly", "database", now=True, why="redis is being replaced", who="ops")


@pytest.mark.parametrize("gone", [leave_locks, stop_answering])
def test_a_dead_run_is_abandoned_after_its_ttl_and_the_grace(gone: Any, settings: Any) -> None:
    execution = dead_execution("redis", ttl=TTL)
    gone(settings)
    replace_strategy()
    clock = Clock()
    reaper = Reaper(clock)
    assert passes(reaper, clock, BEFORE) == 0
    assert passes(reaper, clock, 1) == 1
    execution.refresh_from_db()
    assert execution.state == "abandoned" and execution.tick.outcome == "abandoned"
    assert "'redis' was replaced" in execution.reason and "9 s" in execution.reason


def test_then_the_name_goes_on(settings: Any) -> None:
    waiter, _ = waiting_beside("redis", ttl=TTL)
    leave_locks(settings)
    replace_strategy()
    Tick.objects.filter(pk=waiter.pk).update(state=TickState.WAITING)  # refused again while the dead run stood
    clock = Clock()
    assert passes(Reaper(clock), clock, BEFORE + 1) == 1
    woken = Tick.objects.get(pk=waiter.pk)
    assert woken.state == TickState.DISPATCHED
    assert run(delivery_of(woken), lambda context: None).state is ExecutionState.EXECUTED


def test_a_strategy_that_nobody_replaced_is_waited_for(settings: Any) -> None:
    """Also where another is wanted: it comes into force when the run has ended, and whether it has is not known."""
    execution = dead_execution("redis", ttl=TTL)
    leave_locks(settings)
    retarget("nightly", "database", who="ops")
    clock = Clock()
    assert passes(Reaper(clock), clock, 60) == 0
    assert Execution.objects.get(pk=execution.pk).state == "running"


def test_a_name_that_never_had_a_strategy_in_force_has_replaced_none(settings: Any) -> None:
    dead_execution("redis", ttl=TTL)
    leave_locks(settings)
    LockName.objects.update(alias_in_force="", alias_wanted="redis")
    clock = Clock()
    assert passes(Reaper(clock), clock, 60) == 0


def test_a_body_whose_old_store_shows_its_lease_is_left_alone() -> None:
    tick = make_tick(make_schedule(alias="redis", ttl=60.0))
    Schedule.objects.update(ttl=TTL)

    def body(context: object) -> None:
        replace_strategy()
        clock = Clock()
        assert passes(Reaper(clock), clock, 60) == 0

    assert run(delivery_of(tick), body).state is ExecutionState.EXECUTED


def test_a_heart_that_beats_is_no_silence(settings: Any) -> None:
    execution = dead_execution("redis", ttl=TTL)
    leave_locks(settings)
    replace_strategy()
    clock = Clock()
    reaper = Reaper(clock)
    for _ in range(30):
        assert passes(reaper, clock, 2) == 0
        beat_hearts([execution.pk])
