"""What the facts about one Redis mean for leases that live in it. Pure, but for ``examine``."""

from __future__ import annotations

from collections.abc import Iterator

import redis

from ..findings import Finding, Findings, could_not_look, fail, ok, warn
from .redis_server import RedisFacts, ask

TOPIC = "redis"
OLDEST = (5, 0)
"""Before it, a script that asks for the time may not write afterwards."""
FULL = 0.9  # of maxmemory
CLOCK = 1.0  # seconds by which a store's clock may be off before it is said


def examine(alias: str, client: redis.Redis, server: str, prefix: str) -> Findings:
    """Ask the one server of alias ``alias``, and judge it."""
    return list(judge(alias, ask(client, server, prefix)))


def judge(alias: str, facts: RedisFacts) -> Iterator[Finding]:
    """The findings about the server of a ``redis`` strategy."""
    where = f"{alias} at {facts.server}"
    if facts.silence is not None:
        yield fail(
            TOPIC,
            f"{where}: no answer ({facts.silence}); every run under {alias} is blocked",
            f"Start the server, or correct LOCATION of LOCKS[{alias!r}].",
        )
        return
    yield role_of(TOPIC, where, facts)
    yield policy_of(TOPIC, where, facts)
    yield _memory_over_a_restart(where, facts)
    yield rights_of(TOPIC, where, facts)
    yield from version_and_room(TOPIC, where, facts)


def role_of(topic: str, where: str, facts: RedisFacts) -> Finding:
    """A replica takes no writes; a primary with replicas may lose the last ones to a failover."""
    if facts.role is None:
        return could_not_look(
            topic, f"{where}: INFO is refused to this user, so whether it is a primary is unknown", _grant("INFO")
        )
    if facts.role != "master":
        return fail(
            topic, f"{where}: it is a replica, which takes no writes or loses them",
            "Name the primary in LOCATION.",
        )  # fmt: skip
    if facts.clustered:
        return warn(
            topic, f"{where}: it is one node of a cluster; names whose slot is elsewhere are refused",
            "Name a Redis that is not clustered.",
        )  # fmt: skip
    if facts.replicas:
        return warn(
            topic,
            f"{where}: it is a primary with {facts.replicas} replica(s); a failover forgets the latest leases",
            "Guard the writes with commit_guard(), or choose a strategy in the database.",
        )
    return ok(topic, f"{where}: it is a primary without replicas")


def policy_of(topic: str, where: str, facts: RedisFacts) -> Finding:
    """A server that evicts keys ends leases under their holders, the shortest first."""
    if facts.policy is None:
        return could_not_look(
            topic, f"{where}: neither INFO nor CONFIG GET tells maxmemory-policy to this user",
            _grant("INFO"),
        )  # fmt: skip
    if facts.policy != "noeviction":
        return fail(
            topic, f"{where}: maxmemory-policy is {facts.policy}, so that leases may be evicted while bodies run",
            "CONFIG SET maxmemory-policy noeviction, and keep the leases apart from a cache.",
        )  # fmt: skip
    return ok(topic, f"{where}: maxmemory-policy is noeviction")


def rights_of(topic: str, where: str, facts: RedisFacts) -> Finding:
    if facts.denied:
        return fail(
            topic, f"{where}: NOPERM for {', '.join(facts.denied)}, which the scripts need",
            f"ACL SETUSER the user of LOCATION, with these and its keys: {_grant(*facts.denied)}",
        )  # fmt: skip
    if facts.refuses_writes:
        return fail(
            topic, f"{where}: it refuses writes ({facts.refuses_writes})",
            "Look at its log: it may be a replica, out of memory, or unable to save.",
        )  # fmt: skip
    return ok(topic, f"{where}: this user may do what the scripts do")


def version_and_room(topic: str, where: str, facts: RedisFacts) -> Iterator[Finding]:
    """Only what is out of order."""
    if facts.version and facts.version < OLDEST:
        yield fail(
            topic, f"{where}: version {'.'.join(map(str, facts.version))} is too old for the scripts",
            f"Use Redis {OLDEST[0]} or later, or Valkey.",
        )  # fmt: skip
    if facts.memory_used and facts.memory_used >= FULL:
        yield warn(
            topic, f"{where}: {facts.memory_used:.0%} of maxmemory is used; when it is full, every run is blocked",
            "Raise maxmemory, or move other data away.",
        )  # fmt: skip


def _memory_over_a_restart(where: str, facts: RedisFacts) -> Finding:
    if facts.appends:
        return ok(TOPIC, f"{where}: it keeps an append-only file")
    if facts.appends is None or facts.snapshots is None:
        return could_not_look(
            TOPIC, f"{where}: whether it remembers leases over a restart is not told to this user",
            _grant(*facts.unread),
        )  # fmt: skip
    kept = "only in snapshots, minutes old" if facts.snapshots else "nothing"
    return warn(
        TOPIC, f"{where}: over a restart it keeps {kept}: leases are forgotten while their bodies run",
        "Set appendonly yes, or guard the writes with commit_guard().",
    )  # fmt: skip


def _grant(*commands: str) -> str:
    """The rules that allow what was refused, as ACL SETUSER takes them."""
    names = {command.split(" on ")[0] for command in commands}
    rules = sorted("+config|get" if name == "CONFIG GET" else f"+{name.lower()}" for name in names)
    return f"grant {' '.join(rules)}."
