"""Reports from elsewhere, tried on the lock stores. All of them: ``tests/cases.md``."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest
import time_machine
from django.test import override_settings

from aegis_site.embedded import Services
from locks import LeaseLost, LockUnavailable, connection, lock_backends
from scheduler.models import Schedule, Tick
from scheduler.runner import run
from scheduler.states import ExecutionState
from scheduler.ticker import Ticker
from tests.integration.test_doctor_stores import configured, made
from tests.integration.test_runner import ALL, GUARDED, in_a_thread, nothing, row
from tests.integration.test_tokens import ROWS
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.loss import take_lease_away

pytestmark = pytest.mark.django_db(transaction=True)

MIB = 2**20


@pytest.fixture
def name() -> str:
    return f"cases.{uuid.uuid4().hex}"


@pytest.mark.parametrize("alias", GUARDED)
def test_each_race_of_sixteen_has_one_winner(alias: str, name: str) -> None:
    """A race may have none where somebody was not told (split votes, a store that was slow): never two."""
    gate = Barrier(16)

    def enter(race: int) -> str:
        gate.wait(30)
        try:
            lease = lock_backends[alias].acquire(f"{name}.{race}")
        except LockUnavailable as unknown:
            lease, answer = None, f"unknown: {unknown}"
        else:
            answer = "won" if lease else "refused"
        gate.wait(60)  # everybody has asked
        if lease:
            lock_backends[alias].release(lease)
        return answer

    with ThreadPoolExecutor(16) as pool:  # a race has all of its threads, or its barrier would never open
        races = [list(pool.map(enter, [race] * 16)) for race in range(20)]
    for answers in races:
        doubt = [answer for answer in answers if answer.startswith("unknown")]
        assert answers.count("won") == 1 or (doubt and not answers.count("won")), answers
    assert any("won" in answers for answers in races)


@pytest.mark.parametrize("alias", GUARDED)
def test_a_lease_may_be_given_back_by_another_thread(alias: str, name: str) -> None:
    lease = lock_backends[alias].acquire(name)
    assert lease is not None
    assert in_a_thread(lambda: lock_backends[alias].release(lease)) is True
    again = lock_backends[alias].acquire(name)
    assert again is not None and lock_backends[alias].release(again)


@pytest.mark.parametrize("alias", ["database", "redis", "redlock"])
def test_a_lease_that_was_gone_before_it_was_given_back_is_logged(
    alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The body was over before its next renewal, so nothing else tells of it."""
    tick = make_tick(make_schedule(alias=alias, ttl=6.0))
    outcome = run(delivery_of(tick), lambda context: take_lease_away(alias, context.lock_name))
    assert outcome.state is ExecutionState.EXECUTED
    (said,) = (record for record in caplog.records if getattr(record, "action", "") == "release_late")
    assert f"lock name {tick.lock_name} was not ours any more when it was given back" in said.getMessage()


@pytest.mark.parametrize("alias", ROWS)
def test_a_row_that_vanished_under_its_holder_is_a_lost_lease_and_is_made_again(alias: str, name: str) -> None:
    backend = lock_backends[alias]
    lease = backend.acquire(name)
    assert lease is not None
    connection.execute(f"DELETE FROM {ROWS[alias]} WHERE name = %(name)s", {"name": name})
    with pytest.raises(LeaseLost):
        backend.renew(lease)
    after = backend.acquire(name)
    assert after is not None and (after.grant_no or 0) > (lease.grant_no or 0)
    assert backend.release(lease) is False and backend.release(after) is True


@pytest.mark.parametrize("alias", GUARDED)
@pytest.mark.parametrize("skew", [180.0, -180.0], ids=["ahead", "behind"])
@pytest.mark.parametrize("whose", ["holder", "other"])
def test_the_clock_of_a_worker_takes_no_lease_away(alias: str, skew: float, whose: str, name: str) -> None:
    """Three minutes are more than the lease lasts: by the wrong clock it is over, or has not begun."""
    backend = lock_backends[alias]
    wrong = time_machine.travel(time.time() + skew, tick=True)
    with wrong if whose == "holder" else nullcontext():
        lease = backend.acquire(name, ttl=min(60.0, backend.maximum_ttl))
    assert lease is not None
    try:
        with wrong if whose == "other" else nullcontext():
            assert backend.acquire(name) is None
        assert backend.renew(lease).lease_id == lease.lease_id
    finally:
        assert backend.release(lease) is True


def test_two_coroutines_of_one_loop_do_not_share_a_token(name: str) -> None:
    """The lease is the handle: nothing of it is kept by thread."""
    backend = lock_backends["redis"]

    async def first(taken: asyncio.Event, over: asyncio.Event) -> bool:
        lease = backend.acquire(name, ttl=0.3)
        assert lease is not None
        over.set()
        await taken.wait()
        return backend.release(lease)

    async def second(taken: asyncio.Event, over: asyncio.Event) -> Any:
        await over.wait()
        while (lease := backend.acquire(name, ttl=30)) is None:
            await asyncio.sleep(0.05)
        taken.set()
        return lease

    async def both() -> tuple[bool, Any]:
        events = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(first(*events), second(*events))

    released, lease = asyncio.run(both())
    assert released is False
    assert backend.release(lease) is True


# Redis


@pytest.mark.faults
def test_a_redis_that_became_a_replica_blocks_and_heals(services: Services) -> None:
    schedule = make_schedule(alias="redis")
    with services.redis["locks"].client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            refused = run(delivery_of(make_tick(schedule, seconds_ago=5)), nothing)
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
    assert refused.state is ExecutionState.BLOCKED and "ReadOnlyError" in row(refused).reason
    assert run(delivery_of(make_tick(schedule)), nothing).state is ExecutionState.EXECUTED


def test_a_redis_at_its_memory_limit_blocks_and_heals(services: Services) -> None:
    schedule = make_schedule(alias="redis")
    with configured(services, "maxmemory", "1"):
        refused = run(delivery_of(make_tick(schedule, seconds_ago=5)), nothing)
    assert refused.state is ExecutionState.BLOCKED
    assert run(delivery_of(make_tick(schedule)), nothing).state is ExecutionState.EXECUTED


@pytest.mark.parametrize("wrong", ["password", "host", "tls"])
def test_a_store_that_cannot_be_entered_runs_no_body(wrong: str) -> None:
    parts = urlsplit(lock_backends["redis"].params["LOCATION"])
    url = {
        "password": urlunsplit(parts._replace(netloc=f":wrong@{parts.hostname}:{parts.port}")),
        "host": "redis://no-such-host.invalid:6379/0",
        "tls": urlunsplit(parts._replace(scheme="rediss")),
    }[wrong]
    from django.conf import settings

    entered: list[int] = []
    tick = make_tick(make_schedule(alias="redis"))
    locks = {**settings.LOCKS, "redis": {**settings.LOCKS["redis"], "LOCATION": url}}
    with override_settings(LOCKS=locks):
        outcome = run(delivery_of(tick), lambda context: entered.append(1))
    assert outcome.state is ExecutionState.BLOCKED and row(outcome).reason
    assert not entered


@pytest.mark.faults
@pytest.mark.slow
def test_a_redis_that_restarts_again_and_again_leaks_nothing(
    services: Services, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="locks")  # the records of a test are kept
    backend, server, me = made("redis"), services.redis["locks"], psutil.Process()

    def works() -> bool:
        try:
            lease = backend.acquire(name)
        except LockUnavailable:
            return False
        assert lease is not None
        return backend.release(lease)

    def restart(times: int) -> tuple[int, int, int]:
        """What this process holds afterwards: descriptors, objects, bytes."""
        for _ in range(times):
            server.kill()
            with pytest.raises(LockUnavailable):
                backend.acquire(name)
            server.start()
            wait_until(works, timeout=10, message="it works again")
        gc.collect()
        return me.num_fds(), len(gc.get_objects()), me.memory_info().rss

    assert works()
    descriptors, objects, size = restart(5)  # what is made once is made
    after = restart(15)
    assert after[0] <= descriptors + 2
    assert after[1] <= objects + 100
    assert after[2] <= size + 4 * MIB


# Routers


class Astray:
    """A router that would send every read to a replica that is not there."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica-that-lags"


@pytest.mark.parametrize("alias", ALL)
def test_no_statement_of_a_run_asks_a_router(alias: str) -> None:
    tick = make_tick(make_schedule(alias=alias))
    delivery = delivery_of(tick)
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        assert run(delivery, nothing).state is ExecutionState.EXECUTED
        assert run(delivery, nothing).state is ExecutionState.DUPLICATE


def test_no_statement_of_a_pass_asks_a_router() -> None:
    schedule = make_schedule(every_seconds=1)
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        ticker = Ticker()
        wait_until(lambda: ticker.tick() and ticks_of(schedule) >= 2, timeout=20, message="two ticks were stored")
        connection.execute("UPDATE aegis_scheduler_tick SET dispatch_at = clock_timestamp()")
        ticker.tick()
    assert Tick.objects.using("default").filter(schedule=schedule.pk, copies__gt=0).exists()


def ticks_of(schedule: Schedule) -> int:
    return Tick.objects.using("default").filter(schedule=schedule.pk).count()
