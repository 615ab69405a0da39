"""One Redis server: what it says of itself, and whether this user may do what the scripts do.

Asked are INFO and CONFIG, and each command that the scripts call, once, on a key of the examination's own under the
backend's prefix: a command that is refused to the user outside of a script is refused inside of one.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

PATIENCE = 1.0  # seconds for one answer
KEY_LIFE = 1000  # milliseconds that the examination's own key lives, if it cannot be deleted
UNSEEN_SCRIPT = "0" * 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFacts:
    """What is known of one server. ``None``: it could not be looked at; ``denied`` and ``silence`` say why."""

    server: str
    silence: str | None = None  # why it said nothing at all
    run_id: str | None = None
    version: tuple[int, ...] | None = None
    role: str | None = None
    replicas: int | None = None
    clustered: bool = False
    policy: str | None = None  # maxmemory-policy
    memory_used: float | None = None  # of its limit, 0 to 1; 0 where there is no limit
    appends: bool | None = None  # is there an append-only file?
    snapshots: bool | None = None
    now: float | None = None  # its clock when it was asked, seconds since 1970
    offset: float | None = None  # that less this machine's clock, seconds
    offset_error: float = 0.0  # the offset is right to this many seconds
    denied: tuple[str, ...] = ()  # what the scripts need and this user may not do
    unread: tuple[str, ...] = ()  # commands about itself that it does not answer to this user
    refuses_writes: str | None = None
    marker: str | None = None  # of the quorum's quarantine


def ask(client: redis.Redis, server: str, prefix: str, marker: str | None = None) -> RedisFacts:
    """Ask one server. Raises nothing of Redis: what cannot be read is ``None``."""
    try:
        client.ping()
    except NoPermissionError:
        pass  # it is there
    except RedisError as error:
        return RedisFacts(server=server, silence=type(error).__name__)
    try:
        info = _info(client)
        settings = _settings(client)
        denied, refuses_writes = _rights(client, prefix)
        found = {
            **_known(info or {}, settings or {}),
            **_clock(client),
            "marker": _marker(client, marker),
        }
    except RedisError as error:  # gone in the middle of it
        return RedisFacts(server=server, silence=type(error).__name__)
    unread = [name for name, value in (("INFO", info), ("CONFIG GET", settings)) if value is None]
    return RedisFacts(
        server=server, denied=tuple(denied), unread=tuple(unread), refuses_writes=refuses_writes, **found
    )


def _info(client: redis.Redis) -> Mapping[str, Any] | None:
    with contextlib.suppress(ResponseError):
        answer: Mapping[str, Any] = client.info()
        return answer
    return None


def _settings(client: redis.Redis) -> Mapping[Any, Any] | None:
    with contextlib.suppress(ResponseError):
        answers: list[dict[Any, Any]] = [client.config_get(name) for name in ("maxmemory-policy", "save")]
        return answers[0] | answers[1]
    return None


def _known(info: Mapping[str, Any], settings: Mapping[Any, Any]) -> dict[str, Any]:
    """The facts in INFO and CONFIG. Services that forbid CONFIG still tell the policy in INFO."""
    limit = info.get("maxmemory") or 0
    return {
        "run_id": info.get("run_id"),
        "version": _version(info["redis_version"]) if "redis_version" in info else None,
        "role": info.get("role"),
        "replicas": info.get("connected_slaves"),
        "clustered": bool(info.get("cluster_enabled")),
        "policy": info.get("maxmemory_policy") or settings.get("maxmemory-policy"),
        "memory_used": info["used_memory"] / limit if limit else (0.0 if info else None),
        "appends": bool(info["aof_enabled"]) if "aof_enabled" in info else None,
        "snapshots": bool(settings["save"]) if "save" in settings else None,
    }


def _version(text: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(".")[:2] if part.isdecimal())


def _clock(client: redis.Redis) -> dict[str, float]:
    with contextlib.suppress(ResponseError):
        before = time.time()
        seconds, micros = client.time()
        after = time.time()
        now = seconds + micros / 1_000_000
        return {"now": now, "offset": now - (before + after) / 2, "offset_error": (after - before) / 2}
    return {}


def _marker(client: redis.Redis, marker: str | None) -> str | None:
    if marker is None:
        return None
    with contextlib.suppress(ResponseError):
        value = client.get(marker)
        return value.decode() if isinstance(value, bytes) else None
    return None


def _rights(client: redis.Redis, prefix: str) -> tuple[list[str], str | None]:
    """What is denied to this user, and why a write was refused for another reason."""
    denied: list[str] = []
    refusal: str | None = None
    for name, call in _needed(client, prefix):
        try:
            call()
        except NoScriptError:
            pass  # it would have been run
        except NoPermissionError as error:
            denied.append(f"{name} on {prefix}:*" if "key" in str(error).lower() else name)
        except ResponseError as error:  # read-only, out of memory, cannot save
            refusal = refusal or f"{name}: {type(error).__name__}"
    return list(dict.fromkeys(denied)), refusal


def _needed(client: redis.Redis, prefix: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each command of the scripts, the deletion last."""
    name = f"aegis.doctor:{uuid.uuid4().hex}"
    value = f"{uuid.uuid4()}:0:{time.time() * 1_000_000:.0f}:aegis doctor"
    for kind in ("lock", "fence"):
        key = f"{prefix}:{{{name}}}:{kind}"
        yield "GET", lambda key=key: client.get(key)  # type: ignore[misc]
        yield "SET", lambda key=key: client.set(key, value, px=KEY_LIFE)  # type: ignore[misc]
        yield "PTTL", lambda key=key: client.pttl(key)  # type: ignore[misc]
        yield "PEXPIRE", lambda key=key: client.pexpire(key, KEY_LIFE)  # type: ignore[misc]
        yield "DEL", lambda key=key: client.delete(key)  # type: ignore[misc]
    yield "TIME", client.time
    yield "EVALSHA", lambda: client.evalsha(UNSEEN_SCRIPT, 0)
    yield "EVAL", lambda: client.eval("return 1", 0)
    yield "SCAN", lambda: client.scan(0, match=f"{prefix}:{{{name}}}:*", count=1)
