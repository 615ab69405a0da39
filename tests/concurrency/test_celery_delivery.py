"""Acks, redelivery and lost connections: the broker may send a message again, and never decides on another body."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from aegis_site.celery import app
from aegis_site.embedded import ChildProcess
from locks.proxy import TcpProxy
from scheduler.models import Execution
from scheduler.publisher import publish
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import (
    IMPATIENT,
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

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]


@pytest.fixture
def broker() -> Iterator[TcpProxy]:
    """A way to the broker that can be cut."""
    url = urlsplit(app.conf.broker_url)
    assert url.hostname is not None and url.port is not None
    with TcpProxy((url.hostname, url.port)) as proxy:
        yield proxy


def through(proxy: TcpProxy) -> dict[str, str]:
    url = urlsplit(app.conf.broker_url)
    login = f"{url.netloc.rpartition('@')[0]}@" if "@" in url.netloc else ""
    return {"CELERY_BROKER_URL": urlunsplit(url._replace(netloc=f"{login}127.0.0.1:{proxy.port}"))}


def count(tick: object, *wanted: ExecutionState) -> int:
    return Execution.objects.filter(tick=tick, state__in=wanted).count()


def test_a_message_that_comes_again_while_its_body_runs_and_after_it(celery_processes: CeleryProcesses) -> None:
    """A visibility time-out shorter than the body. With the guard one body runs; without it, one after another."""
    for _ in range(2):
        celery_processes.worker(*WORKER, *configured(broker_transport_options=IMPATIENT), concurrency=2)
    guarded = send("late", kwargs={"seconds": LONG})
    unguarded = send("late", kwargs={"seconds": LONG}, once_per_tick=False)
    assert execution_of(guarded, ExecutionState.DUPLICATE).reason == "this tick was started by another delivery"
    execution_of(unguarded, ExecutionState.PREVENTED)
    assert count(guarded, ExecutionState.RUNNING) == count(unguarded, ExecutionState.RUNNING) == 1  # meanwhile
    let_out(guarded, unguarded)
    for tick in (guarded, unguarded):
        execution_of(tick, ExecutionState.EXECUTED)
    publish([guarded, unguarded])  # as a broker does that has lost the ack
    wait_until(lambda: count(unguarded, ExecutionState.EXECUTED) >= 2, timeout=40, message="it ran again in turn")
    wait_until(lambda: count(guarded, ExecutionState.DUPLICATE) >= 2, timeout=40, message="with it, refused")
    assert bodies(guarded) == 1 and closed(guarded).outcome == "executed"


def blink(proxy: TcpProxy) -> None:
    """End all connections to the broker; new ones are let through at once."""
    proxy.cut()
    proxy.heal()


def shuts_down(worker: ChildProcess) -> bool:
    """A fault of kombu's, now and then: it asks the lost connection for its address, and the worker shuts down."""
    return "Unrecoverable error" in worker.log.read_text()


def accepted() -> bool:
    """Whether some worker counts a task as begun. One of the pool may be from before the broker's restart."""
    with app.connection_for_write() as connection:
        active = app.control.inspect(timeout=0.5, connection=connection).active() or {}
    return any(request["time_start"] for requests in active.values() for request in requests)


def test_the_broker_is_lost_in_mid_body_and_the_body_goes_on(
    celery_processes: CeleryProcesses, broker: TcpProxy
) -> None:
    """Celery gives the message back when it has reconnected: a second copy beside the body that runs."""
    options = configured(broker_transport_options=IMPATIENT)
    worker = celery_processes.worker(*WORKER, *options, concurrency=4, env=through(broker))
    guarded = send("late", kwargs={"seconds": LONG})
    unguarded = send("late", kwargs={"seconds": LONG}, once_per_tick=False)
    for tick in (guarded, unguarded):
        inside(tick)
    blink(broker)
    wait_until(
        lambda: count(guarded, ExecutionState.DUPLICATE) or shuts_down(worker), timeout=40, message="it is back"
    )
    if shuts_down(worker):  # it takes no more messages, and lets its bodies end
        celery_processes.worker(*WORKER, *options, concurrency=4)
    execution_of(guarded, ExecutionState.DUPLICATE)
    execution_of(unguarded, ExecutionState.PREVENTED)
    let_out(guarded, unguarded)
    for tick in (guarded, unguarded):
        execution_of(tick, ExecutionState.EXECUTED)
    assert bodies(guarded) == 1 and closed(guarded).outcome == "executed" and (shuts_down(worker) or worker.running)


def test_the_ack_is_lost_with_the_broker(celery_processes: CeleryProcesses, broker: TcpProxy) -> None:
    """The body ends while the broker is away. What comes again finds a tick that has been executed."""
    options = configured(broker_transport_options=IMPATIENT)
    celery_processes.worker(*WORKER, *options, env=through(broker))
    tick = send("late", kwargs={"seconds": LONG})
    inside(tick)
    broker.cut()
    let_out(tick)
    execution_of(tick, ExecutionState.EXECUTED)
    celery_processes.worker(*WORKER, *options)
    execution_of(tick, ExecutionState.DUPLICATE)
    assert bodies(tick) == 1 and closed(tick).outcome == "executed"


@pytest.mark.parametrize("guarded", [True, False])
def test_the_broker_is_lost_in_mid_body_and_celery_cancels_the_body(
    guarded: bool, celery_processes: CeleryProcesses, broker: TcpProxy
) -> None:
    """The lease is given back at once. With the guard the schedule allows another attempt, and not the broker."""
    options = configured(broker_transport_options=IMPATIENT, worker_cancel_long_running_tasks_on_connection_loss=True)
    worker = celery_processes.worker(*WORKER, *options, env=through(broker))
    celery_processes.beat()
    tick = send("first_long_late", kwargs={"seconds": 20.0}, max_attempts=2, once_per_tick=guarded, ttl=20.0)
    running = inside(tick)
    wait_until(accepted, message="the worker has heard that its child began: it cancels no other")
    blink(broker)
    cut = execution_of(tick, ExecutionState.FAILED, ExecutionState.EXECUTED)
    if shuts_down(worker):  # nobody cancels anything then; the body is let end, once
        assert (cut.state, bodies(tick), closed(tick).outcome) == ("executed", 1, "executed")
        return
    assert cut.pk == running.pk and "told to end" in cut.reason and "SystemExit" in cut.error
    again = execution_of(tick, ExecutionState.EXECUTED, timeout=15)  # although the TTL is 20 s
    assert again.attempt == (2 if guarded else 1) and worker.running
    assert bodies(tick) == 2 or (bodies(tick) > 2 and not guarded)  # without the guard each copy is run
    assert closed(tick).outcome == ("executed" if guarded else "failed")


def test_a_killed_child_and_reject_on_worker_lost(celery_processes: CeleryProcesses) -> None:
    """The message is back at once, and is refused while the lease of the dead stands. The reaper decides."""
    celery_processes.worker(*WORKER, concurrency=3)
    celery_processes.beat()
    once = send("rejecting", kwargs={"seconds": 60.0})
    twice = send("rejecting", kwargs={"seconds": 60.0}, max_attempts=2)
    # Refused by the lease of its dead, which must not end before the message is back.
    unguarded = send("rejecting", kwargs={"seconds": 60.0}, max_attempts=2, once_per_tick=False, ttl=12.0)
    for tick in (once, twice, unguarded):
        pid = inside(tick).pid
        assert pid is not None and pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
    for tick in (once, twice):
        execution_of(tick, ExecutionState.DUPLICATE)
        execution_of(tick, ExecutionState.ABANDONED)
    execution_of(twice, ExecutionState.EXECUTED)
    assert closed(once).outcome == "abandoned" and bodies(once) == 1
    assert closed(unguarded, timeout=90).outcome == "abandoned"
    assert sorted(states(unguarded)) == ["abandoned", "prevented"]
    assert closed(twice).outcome == "executed" and bodies(twice) == 2 and states(twice).count("executed") == 1


def test_a_child_killed_early_and_late_acks_without_reject(celery_processes: CeleryProcesses) -> None:
    """Celery acks both: nothing comes again but what the schedule allows."""
    celery_processes.worker(*WORKER, concurrency=3)
    celery_processes.beat()
    ticks = [send(task, kwargs={"seconds": 60.0}) for task in ("early", "late")]
    ticks.append(send("early", kwargs={"seconds": 60.0}, max_attempts=3, once_per_tick=False))
    for tick in ticks:
        pid = inside(tick).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    for tick in ticks:
        assert closed(tick).outcome == "abandoned" and states(tick) == ["abandoned"]
