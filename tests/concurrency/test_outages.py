"""Stores that go away under running workers: closed while away, visible, healed without a restart."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from django.db import OperationalError, connection
from django.db.models import QuerySet
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from aegis_site.celery import app
from aegis_site.demo.models import Effect
from aegis_site.embedded import Services
from locks.connection import close_all
from scheduler.models import Execution, Tick
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

SETTLE = "aegis_site.demo.tasks.settle_invoices"
BUSY = "tests.support.tasks.busy"
TEST_TASKS = ("-I", "tests.support.tasks")
DIGEST = "aegis_site.demo.tasks.send_digest"
OUTAGE = 30.0  # seconds


def count(state: ExecutionState) -> int:
    return Execution.objects.filter(state=state).count()


def of(name: str) -> QuerySet[Execution]:
    return Execution.objects.filter(tick__schedule_name=name)


def executed(name: str) -> int:
    return of(name).filter(state=ExecutionState.EXECUTED).count()


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else is given meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_redis_away_blocks_visibly_and_heals_without_a_restart(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    """The one worker serves a schedule of another store as before."""
    make_schedule("digest", alias="redis", every_seconds=1, task=DIGEST)
    make_schedule("elsewhere", alias="database", every_seconds=1, task=DIGEST)
    worker = celery_processes.worker()
    beat = celery_processes.beat()
    for name in ("digest", "elsewhere"):
        wait_until(lambda name=name: executed(name) >= 2, timeout=40, message=f"ticks of {name} ran")  # type: ignore[misc]

    services.redis["locks"].stop()
    wait_until(lambda: count(ExecutionState.BLOCKED) >= 3, timeout=40, message="executions were blocked")
    blocked = Execution.objects.filter(state=ExecutionState.BLOCKED).first()
    assert blocked is not None and blocked.reason
    assert set(of("digest").values_list("worker")) == set(of("elsewhere").values_list("worker"))
    ran, elsewhere, refused = executed("digest"), executed("elsewhere"), count(ExecutionState.BLOCKED)
    wait_until(
        lambda: executed("elsewhere") >= elsewhere + 3 and count(ExecutionState.BLOCKED) > refused,
        timeout=40,
        message="the other schedule goes on while this one is blocked",
    )
    assert not of("elsewhere").exclude(state__in=[ExecutionState.EXECUTED, ExecutionState.RUNNING]).exists()

    services.redis["locks"].start()
    wait_until(lambda: executed("digest") >= ran + 3, timeout=40, message="ticks ran again")
    assert worker.running and beat.running
    held_back = Tick.objects.filter(executions__state=ExecutionState.BLOCKED, outcome="executed")
    wait_until(held_back.exists, timeout=40, message="a tick that was blocked ran after all")


def test_a_result_backend_that_is_away_does_not_hold_up_beats(celery_processes: CeleryProcesses) -> None:
    """Neither the catalog nor a team's ordinary rows: a beat waits for no result."""
    every = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.create(name="theirs", task="celery.accumulate", interval=every, queue="theirs")
    make_schedule("digest", every_seconds=1, task=DIGEST)
    celery_processes.worker()
    with closed_port() as port:
        beat = celery_processes.beat(
            "--", f"result_backend=redis://127.0.0.1:{port}/0", "task_ignore_result=(json)false"
        )
        wait_until(lambda: count(ExecutionState.EXECUTED) >= 3, timeout=40, message="ticks ran")

        def sent() -> bool:
            with app.connection_for_write() as broker:
                return int(broker.default_channel.client.llen("theirs")) >= 3

        wait_until(sent, timeout=40, message="ordinary rows were sent")
    assert beat.running


def test_a_quorum_without_its_majority_blocks_and_heals(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    make_schedule("digest", alias="redlock", every_seconds=1, task=DIGEST)
    worker = celery_processes.worker()
    celery_processes.beat()
    wait_until(lambda: count(ExecutionState.EXECUTED) >= 2, timeout=40, message="ticks ran")

    for node in services.quorum[:2]:
        node.stop()
    with_a_minority_down = count(ExecutionState.EXECUTED)
    wait_until(
        lambda: count(ExecutionState.EXECUTED) >= with_a_minority_down + 2,
        timeout=40,
        message="three of five do",
    )
    services.quorum[2].stop()
    before = count(ExecutionState.BLOCKED)
    wait_until(lambda: count(ExecutionState.BLOCKED) >= before + 2, timeout=40, message="two of five do not")

    for node in services.quorum[:3]:
        node.start()
    ran = count(ExecutionState.EXECUTED)
    wait_until(lambda: count(ExecutionState.EXECUTED) >= ran + 2, timeout=60, message="ticks ran again")
    assert worker.running


def test_the_database_stopped_for_thirty_seconds_under_redis_runs_abandons_nobody(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    """One body outlasts the outage, one ends in the middle of it: both are executed, neither is abandoned.

    The thirty seconds are the promise under test (five times the silence after which a body may be given up),
    so they are really waited for, on the event of a process that never ends by itself.
    """
    for name, seconds in (("outlasts", 45.0), ("ends-within", 12.0)):
        make_schedule(name, alias="redis", every_seconds=1, task=BUSY, kwargs={"seconds": seconds})
    worker = celery_processes.worker(*TEST_TASKS, concurrency=4)
    beat = celery_processes.beat()
    wait_until(lambda: count(ExecutionState.RUNNING) == 2, timeout=40, message="both bodies are inside")
    inside = list(Execution.objects.filter(state=ExecutionState.RUNNING).values_list("pk", flat=True))

    _leave_database()
    services.postgres.stop()
    wait_out = celery_processes.python("waiter", "-c", f"import time; time.sleep({OUTAGE})")
    wait_until(lambda: not wait_out.running, timeout=OUTAGE + 20, message="the outage is over")
    services.postgres.start()
    wait_until(_database_answers, timeout=30, message="the database answers")

    ended = Execution.objects.filter(pk__in=inside, state=ExecutionState.EXECUTED)
    wait_until(lambda: ended.count() == 2, timeout=60, message=lambda: f"both were executed: {_states(inside)}")
    assert worker.running and beat.running
    assert count(ExecutionState.ABANDONED) == 0
    ran = count(ExecutionState.EXECUTED)
    wait_until(lambda: count(ExecutionState.EXECUTED) > ran, timeout=60, message="the catalog fires again")


def _states(ids: list[int]) -> list[tuple[str, str]]:
    return list(Execution.objects.filter(pk__in=ids).values_list("state", "reason"))


def _leave_database() -> None:
    """Close this test's own connections: the server's polite stop would wait for them."""
    close_all()
    connection.close()


def _database_answers() -> bool:
    try:
        return Execution.objects.exists()
    except OperationalError:
        connection.close()
        return False


def test_a_killed_pool_child_leaves_no_doubled_effect(celery_processes: CeleryProcesses) -> None:
    """The tick of the killed body is not run again (max_attempts is 1), and the schedule goes on."""
    make_schedule("settle", alias="database", every_seconds=2, task=SETTLE, kwargs={"seconds": 8.0})
    worker = celery_processes.worker()
    celery_processes.beat()
    running = wait_until(
        lambda: Execution.objects.filter(state=ExecutionState.RUNNING).first(),
        timeout=40,
        message="a body is inside",
    )
    child = psutil.Process(running.pid)
    assert child.ppid() == worker.pid
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: count(ExecutionState.ABANDONED) == 1, timeout=40, message="the body was given up")
    wait_until(lambda: count(ExecutionState.EXECUTED) >= 1, timeout=60, message="the schedule goes on")
    subjects = list(Effect.objects.values_list("subject", flat=True))
    assert len(subjects) == len(set(subjects))
    assert worker.running


def test_a_retry_with_countdown_zero_runs_after_the_first_attempt_has_ended(
    celery_processes: CeleryProcesses,
) -> None:
    make_schedule("flaky", alias="redis", every_seconds=2, task="tests.support.tasks.flaky_import")
    celery_processes.worker(*TEST_TASKS, concurrency=2)
    celery_processes.worker(*TEST_TASKS, concurrency=2)
    celery_processes.beat()

    def retried_and_executed() -> int:
        return Tick.objects.filter(attempt=2, outcome="executed").count()

    wait_until(lambda: retried_and_executed() >= 3, timeout=60, message="three ticks ran at their second attempt")
    for tick in Tick.objects.filter(attempt=2, outcome="executed").prefetch_related("executions"):
        bodies = sorted((e for e in tick.executions.all() if e.began), key=lambda e: e.attempt)
        assert [body.state for body in bodies] == ["retried", "executed"]
        assert bodies[0].ended_at <= bodies[1].started_at  # type: ignore[operator]
