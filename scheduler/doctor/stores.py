"""The stores of the strategies, each examined by its own backend, and who else lives on the same server."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from celery import current_app
from django.conf import settings

from locks import Finding, InvalidLockBackend, lock_backends
from locks.findings import fail, ok, warn
from scheduler.doctor.bounded import Question

TOPIC = "redis"
SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")


def questions() -> Iterator[Question]:
    """One for each alias of LOCKS, so that a store that hangs hides no other."""
    for alias in lock_backends.aliases():
        yield Question(topic_of(alias), alias, partial(examine, alias))


def topic_of(alias: str) -> str:
    """The last part of the backend's module: redis, redlock; what lives in PostgreSQL is told as such."""
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend:
        return "locks"
    kind = type(backend).__module__.rpartition(".")[2]
    return "postgres" if hasattr(backend, "using") else kind


def examine(alias: str) -> list[Finding]:
    """What the backend says. One that is made elsewhere may say nothing."""
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend as problem:
        return [fail("locks", f"LOCKS[{alias!r}] cannot be used: {problem}", "Run manage.py check.")]
    return list(backend.examine())


def neighbours() -> list[Finding]:
    """Whether leases in Redis share a server with the broker or with a cache."""
    others = {**_broker(), **_caches()}
    return list(judge({alias: _servers_of(alias) for alias in lock_backends.aliases()}, others))


def judge(leases: Mapping[str, set[str]], others: Mapping[str, set[str]]) -> Iterator[Finding]:
    """``leases``: alias -> servers; ``others``: who else -> servers. Servers are resolved ``address:port``."""
    if not any(leases.values()):
        return
    shared = {
        alias: sorted(who for who, theirs in others.items() if servers & theirs)
        for alias, servers in sorted(leases.items())
    }
    for alias, who in shared.items():
        if who:
            yield warn(
                TOPIC, f"{alias} shares a server with {' and '.join(who)}: what fills or empties that ends leases",
                f"Give LOCKS[{alias!r}] a Redis of its own.",
            )  # fmt: skip
    if not any(shared.values()):
        yield ok(TOPIC, "no strategy shares a Redis server with the broker or a cache")


def _servers_of(alias: str) -> set[str]:
    try:
        return {_resolved(server) for server in lock_backends[alias].servers}
    except InvalidLockBackend:
        return set()


def _broker() -> dict[str, set[str]]:
    urls = current_app.conf.broker_read_url or current_app.conf.broker_url
    return {"the broker": {server for url in _listed(urls) if (server := _server(url))}}


def _caches() -> dict[str, set[str]]:
    found = {}
    for alias, entry in settings.CACHES.items():
        location: Any = entry.get("LOCATION")
        found[f"the cache {alias!r}"] = {server for url in _listed(location) if (server := _server(url))}
    return found


def _listed(urls: Any) -> list[str]:
    parts = urls.replace(",", ";").split(";") if isinstance(urls, str) else urls or ()
    return [url.strip() for url in parts if isinstance(url, str)]


def _server(url: str) -> str | None:
    with suppress(ValueError):  # no URL
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return parts.path
        if parts.scheme in SCHEMES:
            return _resolved(f"{parts.hostname or 'localhost'}:{parts.port or 6379}")
    return None


def _resolved(server: str) -> str:
    """``host:port`` with the host's address, so that two names of one server are seen to be one."""
    host, _, port = server.rpartition(":")
    with suppress(OSError):
        return f"{socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)[0][4][0]}:{port}" if host else server
    return server
