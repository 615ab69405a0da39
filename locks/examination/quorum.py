"""The nodes of a quorum: enough of them, independent, awake, and allowed to vote. Pure, but for ``ask``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

from ..findings import Finding, Findings, fail, ok, warn
from .of_redis import CLOCK, policy_of, rights_of, role_of, version_and_room
from .redis_server import RedisFacts, ask

TOPIC = "redlock"


def examine(alias: str, clients: Mapping[str, redis.Redis], prefix: str, marker: str, quarantine: float) -> Findings:
    """Ask all nodes at once, and judge them. ``quarantine``: seconds a restarted node does not vote."""
    with ThreadPoolExecutor(max(1, len(clients)), thread_name_prefix="aegis-examination") as pool:
        asked = [pool.submit(ask, client, server, prefix, marker) for server, client in clients.items()]
        return list(judge(alias, [answer.result() for answer in asked], quarantine))


def judge(alias: str, nodes: Sequence[RedisFacts], quarantine: float) -> Iterator[Finding]:
    awake = [node for node in nodes if node.silence is None]
    yield _count(alias, nodes)
    yield _reach(alias, nodes, awake)
    yield _hosts(alias, nodes)
    if awake:
        yield _servers(alias, awake)
        yield _votes(alias, nodes, awake, quarantine)
        yield _clocks(alias, awake)
    for node in awake:
        where = f"{alias} node {node.server}"
        said = (role_of(TOPIC, where, node), policy_of(TOPIC, where, node), rights_of(TOPIC, where, node))
        yield from (finding for finding in said if finding.remedy)
        yield from version_and_room(TOPIC, where, node)


def _quorum(nodes: Sequence[RedisFacts]) -> int:
    return len(nodes) // 2 + 1


def _count(alias: str, nodes: Sequence[RedisFacts]) -> Finding:
    spare = len(nodes) - _quorum(nodes)
    said = f"{alias}: {len(nodes)} nodes, {_quorum(nodes)} must agree, {spare} may be down"
    if len(nodes) % 2 == 0:
        return warn(TOPIC, f"{said}, as with {len(nodes) - 1}", f"Name {len(nodes) - 1} or {len(nodes) + 1} nodes.")
    return ok(TOPIC, said)


def _reach(alias: str, nodes: Sequence[RedisFacts], awake: Sequence[RedisFacts]) -> Finding:
    silent = "; ".join(f"{node.server}: {node.silence}" for node in nodes if node.silence is not None)
    said = f"{alias}: {len(awake)} of {len(nodes)} nodes answer"
    if len(awake) < _quorum(nodes):
        return fail(TOPIC, f"{said} ({silent}); every run under {alias} is blocked", "Start the nodes that are down.")
    if silent:
        return warn(TOPIC, f"{said} ({silent})", "Start the nodes that are down, one at a time.")
    return ok(TOPIC, said)


def _servers(alias: str, awake: Sequence[RedisFacts]) -> Finding:
    """Two addresses of one server are one vote that is counted twice: two holders may each have a majority."""
    reached: defaultdict[str, list[str]] = defaultdict(list)
    for node in awake:
        if node.run_id:
            reached[node.run_id].append(node.server)
    shared = [" and ".join(sorted(servers)) for servers in reached.values() if len(servers) > 1]
    if shared:
        return fail(
            TOPIC, f"{alias}: {'; '.join(sorted(shared))} lead to one server, whose vote counts more than once",
            f"Name independent servers in LOCATION of LOCKS[{alias!r}].",
        )  # fmt: skip
    unknown = sum(1 for node in awake if not node.run_id)
    if unknown:
        return warn(
            TOPIC, f"{alias}: could not look: {unknown} nodes do not tell their run id (INFO is refused)",
            "Grant +info to the user of LOCATION: without it such a node never votes.",
        )  # fmt: skip
    return ok(TOPIC, f"{alias}: the {len(reached)} that answer are different servers")


def _hosts(alias: str, nodes: Sequence[RedisFacts]) -> Finding:
    hosts = {node.server.rpartition(":")[0] for node in nodes}
    if len(hosts) < len(nodes):
        return warn(
            TOPIC, f"{alias}: {len(nodes)} nodes on {len(hosts)} host(s); what ends a host ends several votes",
            "Give each node a machine of its own.",
        )  # fmt: skip
    return ok(TOPIC, f"{alias}: each node is on a host of its own")


def _votes(alias: str, nodes: Sequence[RedisFacts], awake: Sequence[RedisFacts], quarantine: float) -> Finding:
    waiting = [node for node in awake if not _may_vote(node, quarantine)]
    votes = len(awake) - len(waiting)
    said = f"{alias}: {votes} of {len(nodes)} nodes may vote"
    if not waiting:
        return ok(TOPIC, said)
    who = ", ".join(sorted(node.server for node in waiting))
    said += f"; restarted or never asked: {who} (each sits out {quarantine:.1f} s from its first vote on)"
    if votes < _quorum(nodes):
        return warn(TOPIC, f"{said}; until then runs are blocked", f"Call lock_backends[{alias!r}].prepare(), wait.")
    return warn(TOPIC, said, "Wait; a node that restarts again and again needs a look at its log.")


def _may_vote(node: RedisFacts, quarantine: float) -> bool:
    """Whether its marker bears the run id that it has now, and has for as long as ``quarantine`` (seconds)."""
    if not node.marker or not node.run_id:
        return False
    run_id, _, rest = node.marker.partition(":")
    since, _, sat = rest.partition(":")
    if run_id != node.run_id or not (since.isdecimal() and sat.isdecimal()):
        return False
    return int(sat) >= quarantine * 1000 or (node.now is not None and int(since) / 1000 + quarantine <= node.now)


def _clocks(alias: str, awake: Sequence[RedisFacts]) -> Finding:
    known = [node for node in awake if node.offset is not None]
    if not known:
        return warn(TOPIC, f"{alias}: could not look: no node tells its time", "Grant +time to the user of LOCATION.")
    first = min(known, key=lambda node: node.offset or 0.0)
    last = max(known, key=lambda node: node.offset or 0.0)
    apart = (last.offset or 0.0) - (first.offset or 0.0)
    sure = apart - first.offset_error - last.offset_error
    said = f"{alias}: the clocks of {len(known)} nodes are within {apart:.3f} s"
    if sure > CLOCK:
        return warn(
            TOPIC, f"{said} ({first.server} and {last.server} are furthest apart)",
            "Let all nodes follow one time service: a clock that steps ends leases early.",
        )  # fmt: skip
    return ok(TOPIC, said)
