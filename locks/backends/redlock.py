"""``redlock``: a majority of N independent Redis servers, within a validity time.

Source of the algorithm: "Distributed Locks with Redis" (redis.io), with its advice on delayed restarts
carried out by the run-id quarantine of ``scripts`` instead of by an operator.

A round: send the vote to all nodes at once; granted if at least N // 2 + 1 of *all* nodes said yes and the
trust window, counted from before the round, is still open. Otherwise the round is rolled back on all nodes,
also on the silent ones. What a lost round means is told apart:

- another lease id has a majority: the name is held. ``None``, at once.
- fewer than a majority answered, or may vote yet: nobody can know. ``LockUnavailable``.
- a majority answered and no one has one: the votes were split between contenders. Tried again after a
random pause,
  which each contender draws for itself; after the last round ``LockUnavailable``, because nobody *holds*
  the name.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from ..base import Lease, LeaseInfo, LeaseInfos, validate_name, validate_ttl
from ..examination import quorum
from ..examination.redis_server import PATIENCE
from ..exceptions import LockUnavailable
from ..findings import Findings
from . import scripts
from .base import BaseLockBackend, Grant
from .clients import DEFAULT_PREFIX, client_for, info_from, lock_key, names_in, server_of, url_problem
from .nodes import Answer, Node, ask_all, owe_release
from .params import DEFAULT_TTL, ParamsValidator, positive_count, positive_seconds

FEWEST_NODES = 3
ROUNDS = 4
FIRST_PAUSE = 0.03  # seconds; several round trips on one site. Doubles with each round.


class RedlockParams(ParamsValidator):
    """``LOCATION`` is a list of URLs, one per independent server."""

    options = {"NODE_TIMEOUT": positive_seconds, "QUARANTINE": positive_seconds, "ROUNDS": positive_count}

    def check_backend(self) -> None:
        urls = self.params.get("LOCATION")
        if not isinstance(urls, list | tuple) or not urls:
            self.error("LOCATION", "it is no list of URLs", "Give the URLs of independent Redis servers", 6)
            return
        problems = [f"node {place} {problem}" for place, url in enumerate(urls, 1) if (problem := url_problem(url))]
        for problem in problems:
            self.error("LOCATION", problem, "Give URLs such as redis://host:6379/0", 6)
        if not problems:
            self.check_nodes([server_of(url) for url in urls])
        self.check_quarantine()

    def check_nodes(self, servers: Sequence[str]) -> None:
        for server in sorted(server for server, count in Counter(servers).items() if count > 1):
            remedy = "Name each server once; databases of one server are not independent"
            self.error("LOCATION", f"{server} is named more than once", remedy, 7)
        if len(set(servers)) < FEWEST_NODES:
            remedy = f"Name {FEWEST_NODES} or 5 servers, or use the redis backend for one"
            self.error("LOCATION", f"a quorum of {len(set(servers))} survives no failure", remedy, 7)

    def check_quarantine(self) -> None:
        options = self.params.get("OPTIONS")
        quarantine = options.get("QUARANTINE") if isinstance(options, Mapping) else None
        ttl = self.params.get("TTL", DEFAULT_TTL)
        try:
            needed = quarantine_for(validate_ttl(ttl))
            too_short = quarantine is not None and validate_ttl(quarantine) < needed
        except ValueError:
            return  # already told
        if too_short:
            remedy = f"Give at least {needed:g} seconds, or leave it out"
            self.error("OPTIONS", f"'QUARANTINE' of {quarantine:g} is shorter than a lease may live", remedy, 8)


def quarantine_for(ttl: float) -> float:
    """Seconds a restarted node must sit out, until every lease it may have forgotten has ended."""
    return ttl * 1.01 + 0.05


@dataclass(frozen=True, slots=True)
class Round:
    """The answers of all nodes to one vote."""

    answers: Sequence[Answer]
    quorum: int

    @property
    def votes(self) -> int:
        return sum(1 for answer in self.answers if answer.silence is None and answer.value == 1)

    @property
    def granted(self) -> bool:
        return self.votes >= self.quorum

    @property
    def held_by_another(self) -> bool:
        """Whether one other lease id has a majority of all nodes."""
        others = Counter(lease_id for _, verdict, lease_id in self.refusals if verdict == 0)
        return bool(others) and others.most_common(1)[0][1] >= self.quorum

    @property
    def decisive(self) -> bool:
        """Whether enough nodes voted to give anybody a majority."""
        return len(self.silent) + len(self.quarantined) <= len(self.answers) - self.quorum

    @property
    def silent(self) -> list[str]:
        return sorted(answer.silence for answer in self.answers if answer.silence is not None)

    @property
    def quarantined(self) -> list[str]:
        return sorted(
            f"{server_of(node.url)}: in quarantine for {int(left) / 1000:.1f} s"
            for node, verdict, left in self.refusals
            if verdict == -2
        )

    @property
    def refusals(self) -> list[tuple[Node, int, bytes]]:
        """Who did not say yes, and what instead: see ``scripts.VOTE``."""
        return [
            (answer.node, *answer.value) for answer in self.answers if answer.silence is None and answer.value != 1
        ]

    @property
    def why_not(self) -> str:
        missing = self.silent + self.quarantined
        if not self.decisive:
            voted = len(self.answers) - len(missing)
            return f"only {voted} of {len(self.answers)} nodes voted ({'; '.join(missing)})"
        return f"no majority: {self.votes} of {len(self.answers)} votes"


class RedlockBackend(BaseLockBackend):
    """See the module's docstring. Efficiency grade: survives the loss of a minority of its servers.

    Its nodes must be independent masters, never replicas of each other. Grants carry no number: the
    counters of independent nodes have no common order, so fencing needs the database. **Cold start:** a
    node that was never asked before, or has restarted, votes only after the quarantine. Call ``prepare()``
    early, it starts that clock.

    ``OPTIONS``: ``NODE_TIMEOUT`` seconds for one node (ttl / 20, between 0.05 and 0.25); ``QUARANTINE``
    seconds, at least as long as the longest ttl in use (for the alias's own ttl if not given; longer ttls
    are then refused); ``ROUNDS`` tried when votes are split or missing.
    """

    minimum_ttl: ClassVar[float] = 0.5
    params_validator: ClassVar[type[ParamsValidator]] = RedlockParams

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.timeout = float(self.options.get("NODE_TIMEOUT", min(0.25, max(0.05, self.ttl / 20))))
        self.nodes = [Node(url, self.timeout) for url in params["LOCATION"]]
        self.servers = tuple(server_of(node.url) for node in self.nodes)
        self.longest_exchange = 2 * self.timeout  # to connect, and to be answered; all nodes at once
        self.quorum = len(self.nodes) // 2 + 1
        self.rounds = int(self.options.get("ROUNDS", ROUNDS))
        self.quarantine = float(self.options.get("QUARANTINE", quarantine_for(self.ttl)))
        self.maximum_ttl = max(self.ttl, (self.quarantine - 0.05) / 1.01)
        self.prefix = self.key_prefix or DEFAULT_PREFIX
        self.marker = f"{self.prefix}:node"

    def prepare(self) -> float:
        """Start the quarantine of fresh nodes; seconds until a majority may vote, 0 if it may.

        Raises ``LockUnavailable`` if fewer than a majority answer.
        """
        answers = ask_all(self.nodes, scripts.PREPARE, [self.marker], [_ms(self.quarantine)])
        left = sorted(int(answer.value) / 1000 for answer in answers if answer.silence is None)
        if len(left) < self.quorum:
            raise self._doubt("prepare", "*", _silence(answers))
        return left[self.quorum - 1]

    def inspect(self, name: str) -> LeaseInfo | None:
        return self._inspect(validate_name(name))

    def list(self, prefix: str = "") -> LeaseInfos:
        answers = [node.keys(f"{self.prefix}:{{{prefix}*}}:lock") for node in self.nodes]
        if sum(1 for answer in answers if answer.silence is None) < self.quorum:
            raise self._doubt("list", prefix, _silence(answers))
        keys = {key for answer in answers if answer.silence is None for key in answer.value}
        found = (self._inspect(name) for name in names_in(keys))
        return [info for info in found if info is not None]

    def examine(self) -> Findings:
        clients = {
            server: client_for(node.url, PATIENCE) for server, node in zip(self.servers, self.nodes, strict=True)
        }
        return quorum.examine(self.alias, clients, self.prefix, self.marker, self.quarantine)

    def close(self) -> None:
        for node in self.nodes:
            node.disconnect()

    def _acquire(self, name: str, ttl: float, lease_id: UUID, holder: str) -> Grant | None:
        why_not = ""
        for number in range(self.rounds):
            if number:
                time.sleep(random.uniform(0.5, 1.5) * FIRST_PAUSE * 2 ** (number - 1))  # noqa: S311
            sent_at = self.clock()
            round_id = os.urandom(4).hex()
            outcome = self._vote(name, ttl, lease_id, holder, round_id)
            if outcome.granted and self._trusted_until(sent_at, ttl) > self.clock():
                return Grant(sent_at=sent_at)
            self._roll_back(name, ttl, f"{lease_id}:{round_id}", outcome)
            if outcome.held_by_another:
                return None
            why_not = "the votes came after the trust window" if outcome.granted else outcome.why_not
            if number and not outcome.decisive:
                break  # silence twice is no accident; waiting longer would only keep the caller
        raise self._doubt("acquire", name, why_not)

    def _vote(self, name: str, ttl: float, lease_id: UUID, holder: str, round_id: str) -> Round:
        keys = [lock_key(self.prefix, name), self.marker]
        args = [str(lease_id), _ms(ttl), holder, round_id, _ms(self.quarantine)]
        return Round(ask_all(self.nodes, scripts.VOTE, keys, args), self.quorum)

    def _roll_back(self, name: str, ttl: float, vote: str, outcome: Round) -> None:
        """Take a lost round's votes back everywhere. Waits for nodes that answered, not for silent ones."""
        key = lock_key(self.prefix, name)
        heard = [answer.node for answer in outcome.answers if answer.silence is None]
        released = ask_all(heard, scripts.RELEASE, [key], [vote])
        for answer in (*outcome.answers, *released):
            if answer.silence is not None:
                owe_release(answer.node, key, vote, ttl)

    def _renew(self, lease: Lease, ttl: float) -> bool:
        keys, args = [lock_key(self.prefix, lease.name)], [str(lease.lease_id), _ms(ttl)]
        return self._majority("renew", lease.name, ask_all(self.nodes, scripts.RENEW, keys, args))

    def _release(self, name: str, lease_id: UUID, grant_no: int | None) -> bool:
        key = lock_key(self.prefix, name)
        answers = ask_all(self.nodes, scripts.RELEASE, [key], [str(lease_id)])
        for answer in answers:
            if answer.silence is not None:
                owe_release(answer.node, key, str(lease_id), self.maximum_ttl)
        return self._majority("release", name, answers)

    def _majority(self, action: str, name: str, answers: Sequence[Answer]) -> bool:
        """Whether a majority of all nodes said 1. ``LockUnavailable`` if the silent ones could tip it."""
        yes = sum(1 for answer in answers if answer.silence is None and answer.value == 1)
        no = sum(1 for answer in answers if answer.silence is None and answer.value == 0)
        if yes >= self.quorum:
            return True
        if no > len(self.nodes) - self.quorum:
            return False
        raise self._doubt(action, name, _silence(answers))

    def _inspect(self, name: str) -> LeaseInfo | None:
        answers = ask_all(self.nodes, scripts.SHOW, [lock_key(self.prefix, name)], [])
        shown = [answer.value for answer in answers if answer.silence is None and answer.value]
        ids = Counter(value[:36] for value, _ in shown)
        holder, votes = ids.most_common(1)[0] if ids else (b"", 0)
        if votes >= self.quorum:
            mine = sorted((left, value) for value, left in shown if value[:36] == holder)
            left, value = mine[-self.quorum]  # after this much time the majority is gone
            return info_from(name, self.alias, value, left, numbered=False)
        if votes + sum(1 for answer in answers if answer.silence is not None) >= self.quorum:
            raise self._doubt("inspect", name, _silence(answers))
        return None

    def _doubt(self, action: str, name: str, why: str) -> LockUnavailable:
        return LockUnavailable(
            f"Lock {name!r} ({self.alias}): the quorum could not {action}: {why}.",
            name=name,
            alias=self.alias,
        )


def _silence(answers: Sequence[Answer]) -> str:
    silent = sorted(answer.silence for answer in answers if answer.silence is not None)
    return f"{len(silent)} of {len(answers)} nodes did not answer ({'; '.join(silent)})"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
