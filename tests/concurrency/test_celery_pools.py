"""Every pool of Celery: one body at a time, leases and heartbeats kept, and what each cannot do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from aegis_site.celery import app
from aegis_site.demo.models import Effect
from aegis_site.embedded import ChildProcess
from locks import lock_backends
from scheduler.models import Execution
from scheduler.pools import check_pool
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import LONG, TASKS, WORKER, bodies, closed, execution_of, inside, let_out, send, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

POOLS = {"prefork": 4, "threads": 4, "gevent": 4, "solo": 1}
TTL = 4.0  # seconds


def log_of(worker: ChildProcess) -> str:
    return worker.log.read_text(errors="replace")


@pytest.mark.parametrize("pool", POOLS)
def test_each_pool_keeps_one_body_at_a_time_alive(pool: str, celery_processes: CeleryProcesses) -> None:
    """A body of two TTLs in one worker of the pool, beside copies and other ticks of its lock name in another."""
    for _ in range(2):
        celery_processes.worker(*WORKER, pool=pool, concurrency=POOLS[pool])
    celery_processes.beat()  # whose reaper gives up whoever falls silent
    long = send("redis_nap", kwargs={"seconds": LONG}, alias="redis", ttl=TTL, lock_name="pools", copies=2)
    running = inside(long)
    others = [send("redis_nap", kwargs={"seconds": 0.1}, alias="redis", ttl=TTL, lock_name="pools") for _ in range(4)]
    wait_until(
        lambda: (Execution.objects.get(pk=running.pk).heartbeat_at - running.started_at).total_seconds() > 2 * TTL,
        timeout=40,
        message="its heart beats",
    )
    let_out(long)
    assert closed(long).outcome == "executed" and bodies(long) == 1
    assert {closed(tick).outcome for tick in others} <= {"prevented", "executed"}
    inside_of = sorted(Effect.objects.filter(resource="pools").values_list("entered_at", "left_at"))
    assert all(left <= entered for (_, left), (entered, _) in pairwise(inside_of))


def test_gevent_notices_that_a_body_did_not_give_way(celery_processes: CeleryProcesses) -> None:
    """Nothing is renewed while it computes. Another worker takes over after the TTL; the first is lost."""
    green = celery_processes.worker(*WORKER, pool="gevent", concurrency=4)
    assert "runs greenlets" in log_of(green)
    schedule = {"lock_name": "green", "ttl": 3.0}
    hog = send("computing", kwargs={"seconds": 8.0}, **schedule)
    inside(hog)
    celery_processes.worker(*WORKER)
    lease = lock_backends[hog.lock_alias]
    wait_until(lambda: lease.inspect("green") is None, message="the lease of a body that computes ended")
    later = send("early", kwargs={"seconds": 0.1}, misfire_grace=120, **schedule)
    celery_processes.beat()
    taken_over = execution_of(later, ExecutionState.EXECUTED)
    lost = execution_of(hog, ExecutionState.LOST, ExecutionState.ABANDONED)
    assert taken_over.token is not None and lost.token is not None and taken_over.token > lost.token
    assert states(hog) == [lost.state]
    assert "on_lost='interrupt' is done as 'check' here" in log_of(green) and "greenlet" in log_of(green)


def test_the_check_warns_of_greenlets() -> None:
    assert check_pool() == []
    before = app.conf.worker_pool
    app.conf.worker_pool = "gevent"
    try:
        assert [found.id for found in check_pool()] == ["aegis.scheduler.W020"]
    finally:
        app.conf.worker_pool = before


def test_twenty_threads_do_not_take_each_others_answers(celery_processes: CeleryProcesses) -> None:
    """Each run writes under its own schedule and lock name; an answer that went to a neighbour would show."""
    celery_processes.worker(*WORKER, pool="threads", concurrency=20)
    ticks = [
        send(task, kwargs={"seconds": 0.0}, alias=alias, name=f"{alias}-{row}-{n}", lock_name=f"{alias}.{row}")
        for n in range(3)
        for row in range(10)
        for task, alias in (("redis_nap", "redis"), ("early", "database"))
    ]
    for tick in ticks:
        assert closed(tick, timeout=60).outcome in ("executed", "prevented")
    ran = Execution.objects.filter(began=True)
    assert ran.count() >= 20 and not ran.exclude(state="executed").exists()
    for execution in ran.select_related("tick"):
        effect = Effect.objects.get(schedule=execution.tick.schedule_name)
        assert effect.resource == execution.lock_name == execution.tick.lock_name
    assert len(set(ran.values_list("lease_id", flat=True))) == ran.count() == Effect.objects.count()


def test_stores_that_the_parent_has_touched_before_it_forked(celery_processes: CeleryProcesses) -> None:
    worker = celery_processes.worker("-I", f"tests.support.touch_stores,{TASKS}", concurrency=8)
    ticks = [
        send(task, kwargs={"seconds": 0.05}, alias=alias, name=f"{alias}-{n}")
        for n in range(32)
        for task, alias in (("redis_nap", "redis"), ("early", "database"))
    ]
    for tick in ticks:
        assert closed(tick, timeout=60).outcome == "executed"
    pids = set(Execution.objects.values_list("pid", flat=True))
    assert len(pids) >= 2 and worker.pid not in pids
    assert "ERROR" not in log_of(worker) and "Traceback" not in log_of(worker)
