"""One question to many servers at once, from one thread."""

from __future__ import annotations

import select
from collections.abc import Hashable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import redis
from redis.exceptions import RedisError, ResponseError

from ..clock import boottime
from .wires import Line, Wire, Word

Said = Any | RedisError
"""What a server said, or why it said nothing."""


class Question:
    """``words`` are put to each line before an answer is read from any. A context manager.

    At its end the wires of those that have not answered are closed: what they say later is not heard by anybody.
    """

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words
        self._command: Sequence[bytes] | None = None
        self._poll = select.poll()
        self._asked: dict[int, tuple[Hashable, Line, Wire]] = {}
        self._said: list[tuple[Hashable, Said]] = []

    def __enter__(self) -> Question:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, _, wire in self._asked.values():
            wire.close()

    def put(self, servers: Iterable[tuple[Hashable, Line]]) -> list[Hashable]:
        """Ask each server, which the answers will name as given. Returns those to which no wire is open."""
        strangers = []
        while servers:
            strangers += [to for to, line in servers if not self._take(to, line)]
            servers = [self._drop(number) for number, _ in self._poll.poll(0)]  # said something unasked: hung up
        for number, (to, _, wire) in list(self._asked.items()):
            try:
                if self._command is None:
                    self._command = wire.packed(self._words)
                wire.send(self._command)
            except RedisError as error:
                self._drop(number)
                self._said.append((to, error))
        return strangers

    def _take(self, to: Hashable, line: Line) -> bool:
        wire = line.idle()
        if wire is None or wire.socket is None:
            return False
        number = wire.socket.fileno()
        self._asked[number] = to, line, wire
        self._poll.register(number, select.POLLIN)
        return True

    def _drop(self, number: int) -> tuple[Hashable, Line]:
        self._poll.unregister(number)
        to, line, wire = self._asked.pop(number)
        wire.close()
        return to, line

    def answers(self, patience: float) -> Iterator[tuple[Hashable, Said]]:
        """What each server said within ``patience`` seconds for all of them; what has arrived by then is read.

        A server that stops in the middle of its answer takes one time-out of its own.
        """
        yield from self._said
        ends = boottime() + patience
        while self._asked:
            left = max(0.0, ends - boottime())
            ready = self._poll.poll(left * 1000)
            if not ready:
                break
            for number, _ in ready:
                yield self._hear(number)
        for to, _, _ in self._asked.values():
            yield to, redis.TimeoutError("no answer in time")

    def _hear(self, number: int) -> tuple[Hashable, Said]:
        to, line, wire = self._asked[number]
        try:
            said = wire.receive()
        except ResponseError as error:
            said = error
        except RedisError as error:
            self._drop(number)
            return to, error
        self._poll.unregister(number)
        del self._asked[number]
        line.give_back(wire)
        return to, said
