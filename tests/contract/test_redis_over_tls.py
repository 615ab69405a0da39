"""Locks in servers that are reached over TLS, as managed ones are: asked, refused, given back, and over one wire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import pytest
from trustme import CA

from locks import LockUnavailable, lock_backends
from locks.backends.base import BaseLockBackend
from locks.clock import boottime
from locks.testing import wait_until
from tests.contract.wires import PATIENCE
from tests.support.tls import TlsDoor, authority, tls_door


def locations(alias: str) -> list[str]:
    """The URLs of its servers."""
    location = lock_backends[alias].params["LOCATION"]
    return [location] if isinstance(location, str) else location


def over_tls(alias: str, doors: list[TlsDoor], known: Path | None) -> BaseLockBackend:
    """The backend of ``alias`` through the doors, believing what ``known`` has signed."""
    backend = lock_backends[alias]
    query = urlencode({} if known is None else {"ssl_ca_certs": str(known)})
    urls = []
    for url, door in zip(locations(alias), doors, strict=True):
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        urls.append(parts._replace(scheme="rediss", netloc=f"{user}@127.0.0.1:{door.port}", query=query).geturl())
    location = urls if alias == "redlock" else urls[0]
    return type(backend)("tls", {**backend.params, "LOCATION": location, "OPTIONS": PATIENCE[alias]})


@pytest.fixture(params=["redis", "redlock"])
def alias(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def name() -> str:
    return f"tls.{uuid4().hex}"


@pytest.fixture
def signed(tmp_path: Path) -> tuple[CA, Path]:
    return authority(tmp_path)


@pytest.fixture
def doors(alias: str, signed: tuple[CA, Path]) -> Iterator[list[TlsDoor]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(tls_door(urlsplit(url).hostname or "", urlsplit(url).port or 6379, signed[0]))
            for url in locations(alias)
        ]


def test_a_lease_over_tls_is_as_any_other_and_needs_one_wire(
    alias: str, doors: list[TlsDoor], signed: tuple[CA, Path], name: str
) -> None:
    backend, plain = over_tls(alias, doors, signed[1]), lock_backends[alias]
    try:
        wait_until(lambda: backend.prepare() == 0, within=30, what="its servers can grant")
        for _ in range(3):
            lease = backend.acquire(name)
            assert lease is not None
            assert plain.acquire(name) is None, "it is the same name in the same servers"
            assert backend.renew(lease).trusted_until >= lease.trusted_until
            assert backend.release(lease) is True
        shown = [door.accepted for door in doors]
        assert backend.acquire(name) is not None
        assert [door.accepted for door in doors] == shown
        assert max(shown) <= 3, "one for the locks, and those of the library's client"
    finally:
        backend.close()


def test_a_certificate_that_nobody_known_has_signed_is_no_store(alias: str, doors: list[TlsDoor], name: str) -> None:
    backend = over_tls(alias, doors, None)
    try:
        with pytest.raises(LockUnavailable, match="certificate" if alias == "redis" else "0 of 5"):
            backend.acquire(name, ttl=1)
        ends = boottime() + 2
        wait_until(lambda: boottime() > ends, within=10, what="no release is owed any more: nobody asks closed doors")
    finally:
        backend.close()
