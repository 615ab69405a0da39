"""``queue one`` on real beats and a real worker: who always lost its lock name gets its turn."""

from __future__ import annotations

import signal
from itertools import pairwise

import pytest

from scheduler.models import Execution, Tick
from scheduler.states import ExecutionState, TickState
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import make_schedule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.concurrency]

BUSY = "tests.support.tasks.busy"
TASKS = ("-I", "tests.support.tasks")


def executed(name: str) -> int:
    return Execution.objects.filter(tick__schedule_name=name, state=ExecutionState.EXECUTED).count()


@pytest.mark.parametrize(
    ("alias", "first", "seconds"), [("database", "skip", 0.2), ("redis", "skip", 0.2), ("database", "queue_one", 0.7)]
)
def test_two_schedules_that_are_always_due_at_the_same_instant_both_get_their_turn(
    alias: str, first: str, seconds: float, celery_processes: CeleryProcesses
) -> None:
    """Each second, under one lock name. There is time for both runs, or, in the last case, for one of two."""
    both = {"every_seconds": 1, "task": BUSY, "alias": alias, "lock_name": "shared", "kwargs": {"seconds": seconds}}
    make_schedule("first", **both, overlap=first)
    make_schedule("second", **both, overlap="queue_one")
    celery_processes.worker(*TASKS, concurrency=2)
    celery_processes.beat()
    celery_processes.beat()
    wait_until(
        lambda: executed("second") >= 8 and executed("first") >= 8,
        timeout=90,
        message=lambda: f"both ran eight times; first {executed('first')}, second {executed('second')}",
    )
    assert Execution.objects.filter(tick__schedule_name="second", state=ExecutionState.PREVENTED).exists()
    bodies = Execution.objects.filter(state=ExecutionState.EXECUTED).order_by("started_at")
    stamps = list(bodies.values_list("started_at", "ended_at"))
    assert all(ended <= started for (_, ended), (started, _) in pairwise(stamps))


def test_who_waits_for_a_killed_worker_runs_once_its_lease_is_gone(celery_processes: CeleryProcesses) -> None:
    """Nobody stores the end of the run that is waited for, until the reaper does.

    A fresh tick may take the name first: when the lease has run out and the reaper has not been there yet. So the
    period divides no number of bodies that fit into the bound: each end leaves who waits some seconds of its own.
    """
    body = {"task": BUSY, "kwargs": {"seconds": 16.0}}
    make_schedule("report", every_seconds=7, overlap="queue_one", misfire_grace=60, **body)
    doomed = celery_processes.worker(*TASKS, concurrency=2)
    celery_processes.worker(*TASKS, concurrency=2)
    celery_processes.beat()
    inside = wait_until(
        lambda: Execution.objects.filter(state=ExecutionState.RUNNING).first(), timeout=60, message="a body is inside"
    )
    waits = wait_until(
        lambda: Tick.objects.filter(state=TickState.WAITING).first(), timeout=60, message="the next tick waits"
    )
    victim = doomed if inside.worker.startswith(doomed.name) else celery_processes.started[1]
    victim.signal_group(signal.SIGKILL)
    started = wait_until(
        lambda: Execution.objects.filter(tick=waits, began=True).first(), timeout=150, message="who waited has begun"
    )
    inside.refresh_from_db()
    assert inside.state == ExecutionState.ABANDONED
    assert inside.ended_at is not None and started.started_at is not None
    assert started.started_at >= inside.ended_at
