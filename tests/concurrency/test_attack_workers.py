"""Workers under attack: hostile bodies, every pool, shut down and restarted in mid-body, and no leaks."""

from __future__ import annotations

import os
import signal
from uuid import uuid4

import psutil
import pytest

from aegis_site.celery import app
from scheduler.delivery import task_id_of
from scheduler.models import Execution, Instance, Tick
from scheduler.models.tick import Delivery
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import LONG, let_out
from tests.support.engine import database_now, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = ("-I", "tests.support.hostile_tasks")
MISBEHAVE = "tests.support.hostile_tasks.misbehave"
SLOW = "tests.support.hostile_tasks.slow"
SHORT = "tests.support.hostile_tasks.short"

ENDS = {
    "unpicklable": "failed",
    "system-exit": "failed",
    "keyboard-interrupt": "failed",
    "close-connections": "executed",
    "subprocess": "executed",
    "fork": "executed",
    "thread": "executed",
    "unpicklable-value": "executed",
}


def send(task: str, *args: object) -> str:
    task_id = str(uuid4())
    app.send_task(task, args=args, task_id=task_id)
    return task_id


def ended(task_id: str) -> Execution | None:
    return Execution.objects.filter(task_id=task_id, ended_at__isnull=False).first()


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_whatever_a_body_does_its_end_is_recorded_and_the_worker_goes_on(
    pool: str, celery_processes: CeleryProcesses
) -> None:
    worker = celery_processes.worker(*HOSTILE, pool=pool, concurrency=1)
    for how, state in ENDS.items():
        if pool != "prefork" and how in ("system-exit", "keyboard-interrupt", "fork"):
            continue  # ends the worker itself, in these pools, with or without Aegis
        task_id = send(MISBEHAVE, how)
        execution = wait_until(lambda i=task_id: ended(i), timeout=40, message=f"{how} ended")
        assert execution.state == state, (how, execution.state, execution.reason, execution.error)
    assert worker.running
    last = send(MISBEHAVE, "thread")
    wait_until(lambda: ended(last), timeout=40, message="the worker takes another")


def test_a_warm_shutdown_in_mid_body_lets_it_end(celery_processes: CeleryProcesses) -> None:
    worker = celery_processes.worker(*HOSTILE)
    task_id = send(SLOW, 4.0)
    wait_until(lambda: Execution.objects.filter(task_id=task_id, state="running").exists(), message="it is inside")
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(timeout=30) is not None
    execution = Execution.objects.get(task_id=task_id)
    assert (execution.state, execution.tick.outcome) == ("executed", "executed")


def test_a_worker_for_another_queue_hears_the_broadcast_too(celery_processes: CeleryProcesses) -> None:
    celery_processes.worker("-Q", "other", *HOSTILE)
    schedule = make_schedule(task=SHORT, delivery=Delivery.EVERY_WORKER, alias="none")
    tick = make_tick(schedule, dispatch_at=database_now())
    Ticker()._redispatch()
    wait_until(lambda: Tick.objects.get(pk=tick.pk).outcome == "executed", timeout=30, message="it ran")


def test_two_workers_of_one_name_do_not_take_each_other_for_themselves(celery_processes: CeleryProcesses) -> None:
    first, _ = (celery_processes.worker(*HOSTILE, name="same") for _ in range(2))
    wait_until(lambda: first.log.read_text().count("same@test ready.") == 2, timeout=40, message="both take messages")
    wait_until(lambda: Instance.objects.filter(kind="worker").count() == 2, timeout=40, message="both are ready")
    schedule = make_schedule(task=SLOW, kwargs={"seconds": LONG}, delivery=Delivery.EVERY_WORKER, alias="redis")
    tick = make_tick(schedule, dispatch_at=database_now())
    Ticker()._redispatch()
    wait_until(lambda: Execution.objects.filter(tick=tick).count() == 2, timeout=30, message="both have heard of it")
    let_out(tick)
    wait_until(lambda: Tick.objects.get(pk=tick.pk).outcome == "executed", timeout=30, message="it ran")
    states = sorted(Execution.objects.filter(tick=tick).values_list("state", flat=True))
    assert states.count("executed") == 1
    assert len(states) == 2


def test_a_revoked_waiting_message_closes_its_tick(celery_processes: CeleryProcesses) -> None:
    worker = celery_processes.worker(*HOSTILE)
    blocker = send(SLOW, LONG)
    running = Execution.objects.filter(task_id=blocker, state="running")
    busy = wait_until(running.first, message="it is busy")
    assert busy is not None
    tick = make_tick(make_schedule(task=SHORT), dispatch_at=database_now())
    Ticker()._redispatch()
    app.control.revoke(task_id_of(tick))
    wait_until(lambda: "flagged as revoked" in worker.log.read_text(), message="the worker has heard of it")
    let_out(busy.tick)
    wait_until(lambda: Tick.objects.get(pk=tick.pk).state == TickState.CLOSED, timeout=30, message="it is closed")
    tick.refresh_from_db()
    assert tick.outcome == "revoked", worker.log.read_text()[-2000:]
    assert not Execution.objects.filter(tick=tick, began=True).exists()


def test_an_expired_message_is_settled_and_not_run(celery_processes: CeleryProcesses) -> None:
    from datetime import timedelta

    tick = make_tick(
        make_schedule(task=SHORT), dispatch_at=database_now(), deadline=database_now() + timedelta(seconds=1)
    )
    Ticker()._redispatch()
    wait_until(lambda: database_now() > tick.deadline, message="the deadline is over")
    celery_processes.worker(*HOSTILE)
    Ticker().tend()
    after = send(SHORT)
    wait_until(lambda: ended(after), timeout=30, message="the worker got that far")
    tick.refresh_from_db()
    assert (tick.state, tick.outcome) == (TickState.MISFIRED, "misfired")


def test_two_hundred_runs_in_one_worker_leak_neither_threads_nor_connections(
    celery_processes: CeleryProcesses,
) -> None:
    worker = celery_processes.worker(*HOSTILE, concurrency=1)

    def executed() -> int:
        return Execution.objects.filter(state=ExecutionState.EXECUTED).count()

    def runs(number: int) -> None:
        goal = executed() + number
        for _ in range(number):
            before = executed()
            send(SHORT)
            wait_until(lambda b=before: executed() > b, timeout=20, message="it ran")
        assert executed() >= goal

    def held() -> tuple[int, int]:
        pid = Execution.objects.filter(state=ExecutionState.EXECUTED).latest("id").pid
        child = psutil.Process(pid)
        assert child.ppid() == worker.pid
        return child.num_threads(), child.num_fds()

    runs(20)
    before = held()
    runs(200)
    # The child may still be closing what its last run had open.
    wait_until(
        lambda: held()[0] <= before[0] and held()[1] <= before[1] + 1,
        timeout=30,
        message=lambda: f"threads and descriptors are the {before} of before: {held()}",
    )
