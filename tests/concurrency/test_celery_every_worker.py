"""Delivery to every worker: best effort for each worker, and exclusive all the same."""

from __future__ import annotations

import pytest

from scheduler.models import Execution, Tick
from scheduler.models.tick import Delivery
from scheduler.states import ExecutionState
from tests.concurrency.test_outages import closed_port
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import LONG, WORKER, bodies, closed, execution_of, let_out, seen, send, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]


def to_all(alias: str, seconds: float, *, guarded: bool) -> Tick:
    return send(
        "early", alias=alias, kwargs={"seconds": seconds}, once_per_tick=guarded, delivery=Delivery.EVERY_WORKER
    )  # fmt: skip


def heard(tick: Tick, workers: int) -> None:
    wait_until(
        lambda: (
            Execution.objects.filter(tick=tick, ended_at__isnull=False).count()
            + Execution.objects.filter(tick=tick, began=False).count()
            >= workers
        ),
        timeout=40,
        message=lambda: f"{workers} workers are done with it, seen: {seen(tick)}",
    )


def test_who_is_there_takes_part_and_who_is_not_never_hears_of_it(celery_processes: CeleryProcesses) -> None:
    for number in range(2):
        celery_processes.worker(*WORKER, name=f"there-{number}")
    down = celery_processes.worker(*WORKER, name="down")
    down.stop()

    guarded = to_all("database", 1.0, guarded=True)
    heard(guarded, 2)
    assert bodies(guarded) == 1 and closed(guarded).outcome == "executed"
    assert set(states(guarded)) <= {"executed", "duplicate", "prevented"}

    # A lock without the guard: they are refused in parallel while one is inside, and nobody asks them again.
    locked = to_all("database", LONG, guarded=False)
    execution_of(locked, ExecutionState.PREVENTED)
    let_out(locked)
    heard(locked, 2)
    assert sorted(states(locked)) == ["executed", "prevented"] and closed(locked).outcome == "executed"

    # Neither lock nor guard: each of them, at once.
    bare = to_all("none", 1.0, guarded=False)
    heard(bare, 2)
    assert states(bare) == ["executed", "executed"] and closed(bare).outcome == "executed"

    celery_processes.worker(*WORKER, name="back")
    last = to_all("none", 0.0, guarded=False)
    heard(last, 3)
    workers = set(Execution.objects.exclude(tick=last).values_list("worker", flat=True))
    assert not any(worker.startswith(("back", "down")) for worker in workers)
    assert bodies(last) == 3


def test_a_worker_that_is_cut_off_from_the_store_is_blocked_and_decides_nothing_for_the_others(
    celery_processes: CeleryProcesses,
) -> None:
    for number in range(3):
        celery_processes.worker(*WORKER, name=f"there-{number}")
    with closed_port() as port:
        celery_processes.worker(*WORKER, name="cut-off", env={"REDIS_URL": f"redis://127.0.0.1:{port}/0"})
        tick = to_all("redis", 1.0, guarded=True)
        heard(tick, 4)
    blocked = Execution.objects.get(tick=tick, state=ExecutionState.BLOCKED)
    assert blocked.worker.startswith("cut-off") and not blocked.began and blocked.reason
    others = Execution.objects.filter(tick=tick).exclude(pk=blocked.pk)
    assert sorted(others.values_list("worker", flat=True)) == [f"there-{number}@test" for number in range(3)]
    assert bodies(tick) == 1 and closed(tick).outcome == "executed"
    assert states(tick).count("executed") == 1
    assert set(states(tick)) <= {"executed", "blocked", "duplicate", "prevented"}


def test_a_tick_that_no_worker_heard_is_sent_again(celery_processes: CeleryProcesses) -> None:
    """The message is lost with nobody there to take it; the tick is not. Publishing it again is a beat's work."""
    tick = to_all("database", 0.0, guarded=True)
    Tick.objects.filter(pk=tick.pk).update(dispatch_at=tick.fire_time)  # as when its dispatch time has passed
    celery_processes.worker(*WORKER)
    assert states(tick) == []
    celery_processes.beat()
    assert closed(tick).outcome == "executed"
