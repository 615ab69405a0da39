"""Redis clients, one per process and address, and what the Redis backends share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from ..base import LeaseInfo, validate_name
from .params import ParamsValidator
from .replies import Word
from .scripts import Script
from .wires import Line

DEFAULT_PREFIX = "aegis"
FOREIGN = "somebody who wrote no lease: look at the key, and delete it where it is a mistake"
_SCHEMES = ("redis", "rediss", "unix")


class _Clients:
    """The clients of one process. A forked child starts with none and leaves its parent's sockets alone."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lines: dict[tuple[str, float], Line] = {}


_clients = _Clients()
_inherited: list[_Clients] = []


def _after_fork() -> None:
    global _clients
    _inherited.append(_clients)
    _clients = _Clients()


os.register_at_fork(after_in_child=_after_fork)


def line_to(url: str, timeout: float) -> Line:
    """This process's wires to ``url``, with all their waits bounded by ``timeout`` seconds.

    Retries are off. The library's default of several with a pause would let one acquire outlive its ttl,
    and only the caller knows under which lease id an unknown outcome may be asked for again.
    """
    line = _clients.lines.get((url, timeout))
    if line is None:
        with _clients.lock:
            line = _clients.lines.setdefault((url, timeout), Line(_new_client(url, timeout), timeout))
    return line


def client_for(url: str, timeout: float) -> redis.Redis:
    """This process's client for ``url``, for all that is no exchange of the locks: thread-safe, bounded in the same
    way.
    """
    return line_to(url, timeout).client


def _new_client(url: str, timeout: float) -> redis.Redis:
    parts = urlsplit(url)
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query, True) if name != "protocol"])
    return redis.Redis.from_url(
        parts._replace(query=query).geturl() if "protocol=" in parts.query else url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,  # whatever the URL says: needs no greeting, and nothing is said unasked before an answer
    )


def disconnect(url: str, timeout: float) -> None:
    """Close the connections that no thread is using at the moment."""
    line = line_to(url, timeout)
    line.close()
    line.client.connection_pool.disconnect(inuse_connections=False)


def run(line: Line, script: Script, keys: Sequence[str], args: Sequence[Word] = ()) -> Any:
    """Run ``script``. Sent in full only to a server that has not seen it, and so cannot have run it."""
    try:
        return line.exchange(by_digest(script, keys, args))
    except NoScriptError:
        return line.exchange(in_full(script, keys, args))


def by_digest(script: Script, keys: Sequence[str], args: Sequence[Word]) -> list[Word]:
    """The command that runs a script which the server has seen."""
    return ["EVALSHA", script.sha, len(keys), *keys, *args]


def in_full(script: Script, keys: Sequence[str], args: Sequence[Word]) -> list[Word]:
    """The command that runs a script and lets the server remember it."""
    return ["EVAL", script.source, len(keys), *keys, *args]


def parse_value(value: bytes) -> tuple[UUID, str, datetime, str]:
    """Split what a held key contains into lease id, number, time of the grant and holder."""
    lease_id, number, microseconds, holder = value.decode().split(":", 3)
    return UUID(lease_id), number, datetime.fromtimestamp(int(microseconds) / 1_000_000, UTC), holder


def info_from(name: str, alias: str, value: bytes, left_ms: int, *, numbered: bool) -> LeaseInfo:
    """What a held key shows; without an id where somebody else wrote it: nobody gets the name all the same."""
    left = left_ms / 1000 if left_ms >= 0 else None
    try:
        lease_id, number, acquired_at, holder = parse_value(value)
        grant_no = int(number) if numbered else None
    except (ValueError, OverflowError, OSError):  # OSError: an instant beyond what the system knows
        return LeaseInfo(
            name=name, alias=alias, lease_id=None, holder=FOREIGN, grant_no=None, expires_in=left, acquired_at=None
        )
    return LeaseInfo(
        name=name,
        alias=alias,
        lease_id=lease_id,
        holder=holder,
        grant_no=grant_no,
        expires_in=left,
        acquired_at=acquired_at,
    )


def lock_key(prefix: str, name: str) -> str:
    """The key of a name. The braces keep all keys of one name in one slot of a cluster."""
    return f"{prefix}:{{{name}}}:lock"


def counter_key(prefix: str, name: str) -> str:
    """The key of the last grant number of a name."""
    return f"{prefix}:{{{name}}}:fence"


def names_in(keys: Iterable[bytes]) -> list[str]:
    """The lock names in lock keys, sorted. A key that is like one and names no lock is somebody else's."""
    names = set()
    for key in keys:
        with suppress(ValueError):  # UnicodeDecodeError is one
            names.add(validate_name(key.decode().split("{", 1)[1].rsplit("}", 1)[0]))
    return sorted(names)


def url_problem(url: Any) -> str | None:
    """What is wrong with a Redis URL. Never repeats it: it may hold a password."""
    if not isinstance(url, str) or not url:
        return "is no URL"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no valid URL (percent-encode a password with special characters)"
    if parts.scheme not in _SCHEMES:
        return f"must begin with one of {', '.join(scheme + '://' for scheme in _SCHEMES)}"
    if parts.scheme == "unix":
        return None if parts.path else "names no socket path"
    if port == 0:
        return "has port 0"
    return None


def server_of(url: str) -> str:
    """Which server a URL names, without user, password or database: for messages and comparisons."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{(parts.hostname or 'localhost').lower()}:{parts.port or 6379}"


class RedisParams(ParamsValidator):
    """``LOCATION`` is the URL of one server."""

    def check_backend(self) -> None:
        location = self.params.get("LOCATION")
        if not location:
            self.error("LOCATION", "it is missing", "Give the URL of a Redis, such as redis://host:6379/0", 6)
        elif problem := url_problem(location):
            self.error("LOCATION", f"it {problem}", "Give the URL of a Redis, such as redis://host:6379/0", 6)
