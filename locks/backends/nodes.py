"""The nodes of a quorum: asked all at once, and told again later what they may have missed."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import redis
from redis.exceptions import NoScriptError, RedisError

from ..clock import boottime
from .clients import by_digest, disconnect, in_full, line_to, run, server_of
from .question import Question
from .replies import Word, packed
from .scripts import RELEASE, Script
from .wires import Line, Said

_THREADS = 32  # upper bound per process; they are started as they are needed
_FIRST_RETRY = 0.5  # seconds until a node that was silent is told again; doubles up to ...
_LAST_RETRY = 5.0
_MOST_OWED = 10_000  # releases


@dataclass(frozen=True, slots=True)
class Answer:
    """What one node said: ``value``, or the reason why it said nothing."""

    node: Node
    value: Any = None
    silence: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One independent server of a quorum."""

    url: str
    timeout: float

    @property
    def line(self) -> Line:
        return line_to(self.url, self.timeout)

    @property
    def client(self) -> redis.Redis:
        return self.line.client

    def __repr__(self) -> str:
        return f"<Node {server_of(self.url)}>"  # the URL may hold a password

    def ask(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Answer:
        try:
            return Answer(self, run(self.line, script, keys, args))
        except RedisError as error:
            return self.answer(error)

    def exchange(self, words: Sequence[Word]) -> Said:
        """What the node says to one command."""
        try:
            return self.line.exchange(words)
        except RedisError as error:
            return error

    def keys(self, pattern: str) -> Answer:
        """The keys that match ``pattern``, as a list."""
        try:
            return Answer(self, list(self.client.scan_iter(pattern)))
        except RedisError as error:
            return self.answer(error)

    def answer(self, said: Said) -> Answer:
        if isinstance(said, RedisError):
            return Answer(self, silence=f"{server_of(self.url)}: {_kind(said)}")
        return Answer(self, said)

    def disconnect(self) -> None:
        disconnect(self.url, self.timeout)


def ask_all(nodes: Sequence[Node], script: Script, keys: Sequence[str], args: Sequence[Any]) -> list[Answer]:
    """Ask every node at the same time; a node that does not answer within its time-out counts as silent.

    At the same time, because each silent node would otherwise take its time-out out of the lease's validity. All
    answers are waited for, also when a majority is known: an early return would leave votes on their way
    that arrive after the release and then stay until their ttl.
    """
    answers: list[Answer] = []
    unseen: list[Node] = []
    for node, said in _exchange(nodes, by_digest(script, keys, args)):
        if isinstance(said, NoScriptError):
            unseen.append(node)
        else:
            answers.append(node.answer(said))
    if unseen:  # these have not run it
        answers += [node.answer(said) for node, said in _exchange(unseen, in_full(script, keys, args))]
    return answers


def _exchange(nodes: Sequence[Node], words: Sequence[Word]) -> list[tuple[Node, Said]]:
    """What each node says. Those to which a wire is open are asked by this thread, one after the other and without
    waiting in between; for each of the others a thread connects first, so that one dead node holds up nobody.
    """
    if not nodes:
        return []
    question: Question[Node] = Question(packed(words))
    strangers = question.put([(node, node.line) for node in nodes])
    ends = boottime() + _patience(nodes)
    futures = {_process.pool().submit(node.exchange, words): node for node in strangers}
    said = question.answers(_time_out(nodes))
    if futures:
        done, late = wait(futures, timeout=ends - boottime())
        said += [(futures[future], future.result()) for future in done]
        said += [(futures[future], redis.TimeoutError("no thread was free in time")) for future in late]
    return said


def _time_out(nodes: Sequence[Node]) -> float:
    return max([node.timeout for node in nodes])


def _patience(nodes: Sequence[Node]) -> float:
    """Seconds for all: one time-out to connect, one to be answered, and something for a busy machine."""
    return 2 * _time_out(nodes) + 0.05


def owe_release(node: Node, key: str, starts_with: str, ttl: float) -> None:
    """Release now, and again later until it worked, what ``node`` may have granted without our hearing of it.

    Now, because the vote may have arrived and only its answer been lost. Later, because it may still be on
    its way and arrive after this release; until ``ttl`` seconds are over, when it has ended by itself.
    Nobody waits for either, and the comparison makes both harmless at any time.
    """
    now = boottime()
    _process.debts().add(_Debt(node, key, starts_with, now + ttl), now)


@dataclass(frozen=True, slots=True)
class _Debt:
    node: Node
    key: str
    starts_with: str
    until: float
    again: bool = False

    def pay(self) -> bool:
        return self.node.ask(RELEASE, [self.key], [self.starts_with]).silence is None


class _Debts:
    """A daemon thread that pays owed releases, each when it is due. It sleeps while nothing is owed.

    A node that has just been silent is left alone for a while, with all that it is owed: a dead one takes one
    time-out a pause, however many leases are given back meanwhile.
    """

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.heap: list[tuple[float, int, _Debt]] = []
        self.count = itertools.count()
        self.silent: dict[Node, tuple[float, float]] = {}  # until when it is left alone, and how long that is
        threading.Thread(target=self._run, name="aegis-quorum-releases", daemon=True).start()

    def add(self, debt: _Debt, due: float) -> None:
        """Owe ``debt``, to be paid at ``due``; forgotten where too much is owed, its vote ends with its ttl."""
        with self.condition:
            if len(self.heap) < _MOST_OWED:
                heapq.heappush(self.heap, (due, next(self.count), debt))
                self.condition.notify()

    def _run(self) -> None:
        while True:
            debt = self._next_due()
            heard = debt.pay()
            self._note(debt.node, heard)
            if not (heard and debt.again):
                self.add(replace(debt, again=True), boottime() + _FIRST_RETRY)

    def _note(self, node: Node, heard: bool) -> None:
        if heard:
            self.silent.pop(node, None)
        else:
            pause = min(_LAST_RETRY, 2 * self.silent.get(node, (0.0, _FIRST_RETRY / 2))[1])
            self.silent[node] = boottime() + pause, pause

    def _next_due(self) -> _Debt:
        with self.condition:
            while True:
                now = boottime()
                left = self.heap[0][0] - now if self.heap else None
                if left is None or left > 0:
                    self.condition.wait(left)
                    continue
                debt = heapq.heappop(self.heap)[2]
                alone_until = self.silent.get(debt.node, (0.0, 0.0))[0]
                if debt.until <= now:
                    continue
                if alone_until <= now:
                    return debt
                heapq.heappush(self.heap, (min(alone_until, debt.until), next(self.count), debt))


class _Process:
    """The threads of one process; a forked child makes its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._debts: _Debts | None = None

    def pool(self) -> ThreadPoolExecutor:
        with self.lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="aegis-quorum")
            return self._pool

    def debts(self) -> _Debts:
        with self.lock:
            if self._debts is None:
                self._debts = _Debts()
            return self._debts


_process = _Process()
_inherited: list[_Process] = []


def _after_fork() -> None:
    global _process
    _inherited.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def _kind(error: Exception) -> str:
    """The word with which the server begins its refusal (MISCONF, CLUSTERDOWN), else the client's name for it."""
    word = str(error).partition(" ")[0]
    return word if word.isupper() else type(error).__name__
