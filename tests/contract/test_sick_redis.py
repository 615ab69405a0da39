"""A Redis that answers with an error does not say: neither "free" nor "busy". Well again, it is of use at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from aegis_site.embedded import Services
from locks import LockUnavailable, lock_backends
from locks.backends.base import BaseLockBackend
from locks.backends.redlock import RedlockBackend
from locks.testing import admit_nodes
from tests.support import wait_until
from tests.support.sick_redis import SICKNESSES, SickRedis

pytestmark = pytest.mark.django_db

NODES = 3
TTL = 120.0  # seconds: longer than any test here


@pytest.fixture
def servers(request: pytest.FixtureRequest, services: Services) -> Iterator[list[SickRedis]]:
    """As many as the strategy under test asks for."""
    count = NODES if request.getfixturevalue("alias") == "redlock" else 1
    made = [SickRedis(services.redis["locks"]) for _ in range(count)]
    for number, server in enumerate(made):
        server.name = f"redis-sick-{number}"
        server._folder = server.place.data / server.name
        server.start()
    yield made
    for server in made:
        server.kill()


@pytest.fixture
def backend(alias: str, servers: list[SickRedis]) -> Iterator[BaseLockBackend]:
    configured = lock_backends[alias]
    urls = [server.url for server in servers]
    made = type(configured)(
        "sick", {**configured.params, "LOCATION": urls if alias == "redlock" else urls[0], "TTL": TTL}
    )
    admit(made)
    yield made
    made.close()


@pytest.mark.parametrize("word", SICKNESSES)
@pytest.mark.parametrize("alias", ["redis", "redlock"])
def test_an_error_is_never_an_answer_and_says_itself(
    alias: str, word: str, servers: list[SickRedis], backend: BaseLockBackend
) -> None:
    kind, held = SICKNESSES[word], f"held:{uuid.uuid4()}"
    lease = backend.acquire(held)
    assert lease is not None
    with ExitStack() as sick:
        for server in servers[: len(servers) // 2 + 1]:
            sick.enter_context(kind.fall_sick(server))
            wait_until(partial(server.refuses, kind.says), timeout=30, message=f"the server says {word}")
        with pytest.raises(LockUnavailable, match=kind.says):
            backend.acquire("free")
        assert not granted(backend, held)  # where it can still read, "held" is an answer
    admit(backend)
    wait_until(lambda: not unavailable(backend), timeout=60, message="the same backend works again")
    if word != "LOADING":  # what was read back may be older than the lease
        assert backend.acquire(held) is None
        assert backend.renew(lease).lease_id == lease.lease_id
        assert backend.release(lease) is True


def admit(backend: BaseLockBackend) -> None:
    """A node that has restarted sits out a quarantine, which has a test of its own."""
    if isinstance(backend, RedlockBackend):
        admit_nodes(backend)


def granted(backend: BaseLockBackend, name: str) -> bool:
    try:
        return backend.acquire(name) is not None
    except LockUnavailable:
        return False


def unavailable(backend: BaseLockBackend) -> bool:
    name = f"probe:{uuid.uuid4()}"
    try:
        lease = backend.acquire(name)
    except LockUnavailable:
        return True
    assert lease is not None
    return not backend.release(lease)
