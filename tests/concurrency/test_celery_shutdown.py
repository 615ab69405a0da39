"""Workers that are shut down in the middle of a body, warm, cold, softly, and by Kubernetes; children that retire."""

from __future__ import annotations

import os
import signal

import pytest

from locks import lock_backends
from scheduler.models import Execution
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import (
    LONG,
    WORKER,
    bodies,
    closed,
    configured,
    execution_of,
    inside,
    let_out,
    send,
    states,
)
from tests.support.engine import database_now

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

TTL = 4.0  # seconds


def test_a_warm_shutdown_keeps_lease_and_heartbeat_until_the_body_ends(celery_processes: CeleryProcesses) -> None:
    """Two TTLs after the signal. A second SIGTERM changes nothing in this Celery."""
    worker = celery_processes.worker(*WORKER)
    celery_processes.beat()  # whose reaper looks on
    tick = send("early", kwargs={"seconds": LONG}, ttl=TTL)
    running = inside(tick)
    os.kill(worker.pid, signal.SIGTERM)
    told_at = database_now()
    for _ in range(2):
        os.kill(worker.pid, signal.SIGTERM)
    wait_until(
        lambda: (Execution.objects.get(pk=running.pk).heartbeat_at - told_at).total_seconds() > 2 * TTL,
        timeout=40,
        message="hearts beat on",
    )
    held = lock_backends["database"].inspect(tick.lock_name)
    assert held is not None and held.lease_id == running.lease_id and (held.expires_in or 0) > 0
    let_out(tick)
    assert worker.wait(timeout=30) == 0
    assert closed(tick).outcome == "executed" and states(tick) == ["executed"]


@pytest.mark.parametrize("also_warm", [False, True])
def test_a_cold_shutdown_gives_the_lease_back_and_spends_the_attempt(
    also_warm: bool, celery_processes: CeleryProcesses
) -> None:
    worker = celery_processes.worker(*WORKER)
    celery_processes.beat()
    tick = send("first_long", kwargs={"seconds": 60.0}, ttl=30.0, max_attempts=2)
    running = inside(tick)
    if also_warm:
        os.kill(worker.pid, signal.SIGTERM)
    os.kill(worker.pid, signal.SIGQUIT)
    cut = execution_of(tick, ExecutionState.FAILED)
    assert cut.pk == running.pk and "told to end" in cut.reason
    worker.wait(timeout=30)
    celery_processes.worker(*WORKER)
    second = execution_of(tick, ExecutionState.EXECUTED, timeout=25)  # although the TTL is 30 s
    assert second.attempt == 2 and bodies(tick) == 2


def test_a_soft_shutdown_lets_a_short_body_end(celery_processes: CeleryProcesses) -> None:
    worker = celery_processes.worker(*WORKER, *configured(worker_soft_shutdown_timeout=10))
    tick = send("early", kwargs={"seconds": LONG}, ttl=TTL)
    inside(tick)
    os.kill(worker.pid, signal.SIGQUIT)
    let_out(tick)
    assert closed(tick).outcome == "executed"
    worker.wait(timeout=60)


def test_a_grace_that_is_too_short_for_the_body(celery_processes: CeleryProcesses) -> None:
    """SIGTERM, and SIGKILL to all of the container: nobody stores anything; the reaper and the schedule go on."""
    worker = celery_processes.worker(*WORKER)
    celery_processes.beat()
    tick = send("first_long", kwargs={"seconds": 60.0}, ttl=TTL, max_attempts=2)
    inside(tick)
    os.kill(worker.pid, signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in worker.log.read_text(errors="replace"), message="it has begun to end")
    worker.signal_group(signal.SIGKILL)
    worker.wait(timeout=10)
    abandoned = execution_of(tick, ExecutionState.ABANDONED)
    assert abandoned.attempt == 1
    celery_processes.worker(*WORKER)
    assert execution_of(tick, ExecutionState.EXECUTED).attempt == 2 and closed(tick).outcome == "executed"


@pytest.mark.parametrize("option", ["--max-tasks-per-child=1", "--max-memory-per-child=1"])
def test_children_that_retire_after_each_task(option: str, celery_processes: CeleryProcesses) -> None:
    celery_processes.worker(*WORKER, option)
    ticks = [send("early", kwargs={"seconds": 0.0}) for _ in range(4)]
    for tick in ticks:
        assert closed(tick).outcome == "executed" and states(tick) == ["executed"]
    assert len(set(Execution.objects.values_list("pid", flat=True))) == 4
