"""A lease changes hands while what its former holder has asked for is under way.

The servers have answered, and the answers are held back: a release or a renewal that first looks and then acts has
looked, and acts after another holder has come.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import pytest
import redis

from locks import Lease, lock_backends
from locks.backends.base import BaseLockBackend
from locks.backends.clients import lock_key
from locks.backends.redis import RedisLockBackend
from locks.backends.redlock import RedlockBackend
from locks.testing import FrozenClock, TcpProxy, admit_nodes, wait_until
from tests.contract.wires import PATIENCE, WIRED, wired_redis

pytestmark = pytest.mark.django_db


@dataclass
class Stores:
    """The servers of one alias, a backend that reaches them over proxies, and a name on them."""

    backend: BaseLockBackend
    proxies: list[TcpProxy]
    clients: list[redis.Redis]
    key: str

    def while_answers_are_held(self, ask: Callable[[], Any], meanwhile: Callable[[], None]) -> Future[Any]:
        """``ask`` in a thread; ``meanwhile`` is done when each server has answered and no answer has arrived."""
        before = [proxy.held for proxy in self.proxies]
        for proxy in self.proxies:
            proxy.hold_answers()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            try:
                wait_until(
                    lambda: all(p.held > n for p, n in zip(self.proxies, before, strict=True)), what="all answered"
                )
                meanwhile()
            finally:
                for proxy in self.proxies:
                    proxy.heal()
        return asked

    def hand_over(self, successor: uuid.UUID, milliseconds: int) -> None:
        for client in self.clients:
            client.set(self.key, f"{successor}:1:0:successor", px=milliseconds)

    def holders(self) -> set[str]:
        return {(client.get(self.key) or b"")[:36].decode() for client in self.clients}


def clients_of(alias: str) -> list[redis.Redis]:
    if alias == "redlock":
        return [node.client for node in cast("RedlockBackend", lock_backends[alias]).nodes]
    return [cast("RedisLockBackend", lock_backends[alias]).client]


@pytest.fixture(params=["redis", "redlock"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    alias, name = request.param, f"takeover.{uuid.uuid4().hex}"
    if alias == "redlock":
        admit_nodes(lock_backends[alias])
    with wired_redis(alias) as (wired, proxies):
        backend = type(wired)(WIRED, {**wired.params, "OPTIONS": PATIENCE[alias]})
        clients = clients_of(alias)
        found = Stores(backend, proxies, clients, lock_key(cast("RedisLockBackend", backend).prefix, name))
        yield found
        for client in clients:
            client.delete(found.key)
        backend.close()


def granted(stores: Stores) -> Lease:
    """A lease, of a backend whose clock stands still so that only the store decides; every script was sent before."""
    name = stores.key.partition("{")[2].partition("}")[0]
    warm_up = stores.backend.acquire(name)
    assert warm_up is not None
    stores.backend.release(stores.backend.renew(warm_up))
    lease = stores.backend.acquire(name)
    assert lease is not None
    stores.backend.clock = FrozenClock()
    return lease


def test_a_release_under_way_leaves_who_came_meanwhile_alone(stores: Stores) -> None:
    lease, successor = granted(stores), uuid.uuid4()
    released = stores.while_answers_are_held(
        lambda: stores.backend.release(lease), lambda: stores.hand_over(successor, 60_000)
    )
    assert released.result() is True, "it was the holder when the servers were asked"
    assert stores.holders() == {str(successor)}


def test_a_renewal_under_way_prolongs_nobody_elses_lease(stores: Stores) -> None:
    lease, successor = granted(stores), uuid.uuid4()
    shorter = round(lease.ttl * 750)
    renewed = stores.while_answers_are_held(
        lambda: stores.backend.renew(lease), lambda: stores.hand_over(successor, shorter)
    )
    assert renewed.result().lease_id == lease.lease_id
    assert stores.holders() == {str(successor)}
    assert all(0 < client.pttl(stores.key) <= shorter for client in stores.clients)
