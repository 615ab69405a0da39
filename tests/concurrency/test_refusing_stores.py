"""Stores that refuse under a running beat and worker: closed, visible, healed without a restart, nothing leaked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psutil
import psycopg
import pytest
from django.db import connection

from aegis_site.embedded import ChildProcess, Services
from locks.connection import close_all
from scheduler.models import Execution, Instance, Tick
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import database_now, make_schedule
from tests.support.processes import database_url
from tests.support.sick_redis import SICKNESSES, SickRedis

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.concurrency]

REFUSED = "ReadOnlySqlTransaction"
DIGEST = "aegis_site.demo.tasks.send_digest"


@pytest.fixture
def store(services: Services) -> Iterator[SickRedis]:
    server = SickRedis(services.redis["locks"])
    server.start()
    yield server
    server.kill()


def count(state: ExecutionState) -> int:
    return Execution.objects.filter(state=state).count()


def ran_again(since: int) -> bool:
    return count(ExecutionState.EXECUTED) >= since + 3


def held(processes: list[ChildProcess]) -> int:
    """Descriptors and threads of these processes and their children."""
    found = [
        p for process in processes for p in (psutil.Process(process.pid), *psutil.Process(process.pid).children())
    ]
    return sum(process.num_fds() + process.num_threads() for process in found)


def at_rest(processes: list[ChildProcess]) -> int:
    """What they hold once each has shown that it is alive again: presence has a connection of its own."""
    healed, alive = database_now(), Instance.objects.filter(stopped_at__isnull=True)
    wait_until(
        lambda: alive.filter(heartbeat_at__gt=healed).count() == len(processes),
        timeout=60,
        message="worker and beat show that they are alive",
    )
    return held(processes)


def settles(processes: list[ChildProcess], before: int) -> None:
    """What a beat does beside its passes opens a connection now and then; a leak is what never goes."""
    wait_until(
        lambda: held(processes) <= before + 2,
        timeout=30,
        message=lambda: f"descriptors and threads are about the {before} of before: {held(processes)}",
    )


def test_a_redis_that_refuses_blocks_says_why_and_heals_without_a_restart(
    celery_processes: CeleryProcesses, store: SickRedis
) -> None:
    """One worker and one beat meet each kind of refusal, some of them twice: a second leaves nothing open."""
    make_schedule("digest", alias="redis", every_seconds=1, task=DIGEST)
    worker = celery_processes.worker(env={"REDIS_URL": store.url})
    beat = celery_processes.beat(env={"REDIS_URL": store.url})
    wait_until(partial(ran_again, 0), timeout=40, message="ticks ran")
    for word in SICKNESSES:
        suffer(store, word)
    before = at_rest([worker, beat])
    for word in ("READONLY", "OOM", "NOPERM"):
        suffer(store, word)
    assert worker.running and beat.running
    settles([worker, beat], before)
    with store.client() as client:
        wait_until(
            lambda: client.info("clients")["connected_clients"] <= 6,  # type: ignore[index]
            message="six connections at most to the store of one worker with one child, and one beat",
        )
    secret = store._password
    assert not Execution.objects.filter(reason__contains=secret).exists()
    assert all(secret not in log.read_text() for log in celery_processes.logs.glob("*.log"))


def suffer(store: SickRedis, word: str) -> None:
    """Let the store fall sick until a delivery is blocked by it, and well until ticks run."""
    kind = SICKNESSES[word]
    refused = Execution.objects.filter(state=ExecutionState.BLOCKED, reason__iregex=kind.says)
    before = refused.count()
    with kind.fall_sick(store):
        wait_until(lambda: refused.count() > before, timeout=40, message=f"a delivery was blocked by {word}")
    wait_until(partial(ran_again, count(ExecutionState.EXECUTED)), timeout=40, message=f"ticks ran after {word}")


def test_a_database_that_has_become_read_only_is_waited_for(celery_processes: CeleryProcesses) -> None:
    """As after a failover to a standby that is not promoted yet: every write is refused, every read answered."""
    make_schedule("digest", alias="database", every_seconds=1, task=DIGEST)
    worker = celery_processes.worker()
    beat = celery_processes.beat()
    wait_until(partial(ran_again, 0), timeout=40, message="ticks ran")
    before = 0
    for _ in range(2):
        read_only(True)
        try:
            minted, heard = Tick.objects.count(), said(beat, REFUSED)
            wait_until(lambda heard=heard: said(beat, REFUSED) > heard, timeout=40, message="the beat felt it")  # type: ignore[misc]
            assert Tick.objects.count() <= minted + 1  # one could have been on its way
        finally:
            read_only(False)
        wait_until(partial(ran_again, count(ExecutionState.EXECUTED)), timeout=60, message="ticks ran again")
        before = before or at_rest([worker, beat])
    assert worker.running and beat.running
    settles([worker, beat], before)
    assert count(ExecutionState.ABANDONED) == 0


def said(process: ChildProcess, text: str) -> int:
    return process.log.read_text(errors="replace").count(text)


def read_only(on: bool) -> None:
    """Of all transactions on the test database but the one that says so; sessions begin anew, as after a failover."""
    with psycopg.connect(database_url(), autocommit=True, options="-c default_transaction_read_only=off") as session:
        name = session.info.dbname
        session.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {"on" if on else "off"}')
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [name],
        )
    close_all()
    connection.close()
