"""Backends whose real store is reached over a wire that a test can disturb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit, urlunsplit

from django.db import connections

from locks import connection, pooling
from locks.backends.base import BaseLockBackend
from locks.handler import lock_backends
from locks.proxy import Address
from locks.testing import TcpProxy

WIRED = "wired"
"""Alias of the database, and of the lock backends, that are reached over a proxy."""
PATIENCE = {"redis": {"SOCKET_TIMEOUT": 30}, "redlock": {"NODE_TIMEOUT": 30}}
"""Options of a backend for tests in which a busy machine must not be taken for a silent server; in seconds."""


@contextmanager
def wired_database() -> Iterator[TcpProxy]:
    """Adds a database alias ``wired``: the test database, over a proxy."""
    with TcpProxy(database_address()) as proxy, database_behind(proxy.port):
        yield proxy


@contextmanager
def database_behind(port: int) -> Iterator[None]:
    """Adds a database alias ``wired``: the test database, over what listens on ``port``."""
    entry = connections["default"].settings_dict
    connections.settings[WIRED] = {**entry, "HOST": "127.0.0.1", "PORT": port}
    try:
        yield
    finally:
        connection.close_all()
        # The next one may get the same port, and be a pooler where this one was none.
        pooling._proven.difference_update([way for way in pooling._proven if way[1] == WIRED])
        pooling._refuted.discard(WIRED)
        del connections.settings[WIRED]
        if hasattr(connections._connections, WIRED):
            del connections[WIRED]


def wired_row_backend(alias: str) -> BaseLockBackend:
    """The backend of ``alias``, on the database ``wired``."""
    backend = lock_backends[alias]
    return type(backend)(WIRED, {**backend.params, "LOCATION": WIRED})


@contextmanager
def wired_redis(alias: str) -> Iterator[tuple[BaseLockBackend, list[TcpProxy]]]:
    """The backend of ``alias`` with each of its servers behind a proxy of its own."""
    backend = lock_backends[alias]
    location = backend.params["LOCATION"]
    urls = [location] if isinstance(location, str) else location
    with ExitStack() as stack:
        proxies = [stack.enter_context(TcpProxy(_redis_address(url))) for url in urls]
        wired = [_through(url, proxy.port) for url, proxy in zip(urls, proxies, strict=True)]
        params = {**backend.params, "LOCATION": wired[0] if isinstance(location, str) else wired}
        backend = type(backend)(WIRED, params)
        yield backend, proxies
        for proxy in proxies:
            proxy.heal()
        backend.close()


def database_address() -> Address:
    """Where the server of the test database listens."""
    entry = connections["default"].settings_dict
    host, number = entry["HOST"], int(entry["PORT"] or 5432)
    return f"{host}/.s.PGSQL.{number}" if host.startswith("/") else (host or "127.0.0.1", number)


def _redis_address(url: str) -> Address:
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else (parts.hostname or "127.0.0.1", parts.port or 6379)


def _through(url: str, port: int) -> str:
    parts = urlsplit(url)
    secret = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{secret}@127.0.0.1:{port}" if secret else f"127.0.0.1:{port}"))
