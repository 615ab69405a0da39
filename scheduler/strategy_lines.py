"""What each strategy gives, needs and costs, a line each; for the form and the page that changes strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from locks import InvalidLockBackend, lock_backends


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One alias of LOCKS."""

    alias: str
    guarantee: str
    needs: str
    cost: str


# By the name of the backend's class.
_KNOWN = {
    "NoLockBackend": ("nothing: overlap is expected; for measuring", "nothing", "none"),
    "DatabaseLeaseBackend": (
        "one holder by the database's clock; a dead holder's name is free after the TTL",
        "PostgreSQL",
        "one statement a renewal, every third of the TTL",
    ),
    "OptimisticClaimBackend": (
        "one holder within the claim window; a run that outlives it may be overlapped, and is then recorded as lost",
        "PostgreSQL, and runs shorter than the TTL",
        "two statements a run, no renewals",
    ),
    "AdvisoryLockBackend": (
        "one holder as long as its session lives; free at once when it is killed",
        "a direct session of PostgreSQL, no transaction pooler",
        "a connection a run",
    ),
    "RowLockBackend": (
        "one holder as long as its transaction lives; free at once when it is killed",
        "a direct session of PostgreSQL, no transaction pooler",
        "a connection with an open transaction a run",
    ),
    "RedisLockBackend": (
        "one holder while Redis keeps its data; not across a failover or a flush",
        "Redis",
        "a round trip a renewal",
    ),
    "RedlockBackend": (
        "one holder while a quorum of nodes stands; survives the loss of a minority",
        "three or more independent Redis nodes",
        "a round trip to every node a renewal",
    ),
}


def lines() -> list[Line]:
    """Every alias of LOCKS, in its order."""
    return [_line(alias, params) for alias, params in getattr(settings, "LOCKS", {}).items()]


def _line(alias: str, params: Any) -> Line:
    name = str(params.get("BACKEND", "")).rpartition(".")[2]
    guarantee, needs, cost = _KNOWN.get(name) or (_by_flags(alias), f"what {name} needs", "not known here")
    return Line(alias=alias, guarantee=guarantee, needs=needs, cost=cost)


def _by_flags(alias: str) -> str:
    """Of somebody else's backend."""
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend:
        return "cannot be used as it is configured"
    if not backend.exclusive:
        return "nothing: overlap is expected"
    ends = "renewed while the run lasts" if backend.renewable else "not renewed"
    return f"one holder, {ends}"


def weaker(old: str, new: str) -> list[str]:
    """What ``new`` lacks that ``old`` has; aliases of LOCKS, of which ``old`` may be gone."""
    try:
        after, before = lock_backends[new], lock_backends[old]
    except InvalidLockBackend:
        return []
    if not after.exclusive:
        return ["removes exclusivity: two runs can be inside at once"] if before.exclusive else []
    if not before.exclusive:
        return []
    found = []
    if before.renewable and not after.renewable:
        found.append("weaker: the lease is not renewed, a run that outlives it may be overlapped")
    if before.survives_store_restart and not after.survives_store_restart:
        found.append("weaker: leases may be gone when the store comes back")
    if before.bounded_takeover and not after.bounded_takeover:
        found.append("weaker: a dead holder's name is not free after a known time")
    return found
