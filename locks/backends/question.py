"""One question to many servers at once, from one thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from redis.exceptions import RedisError

from ..clock import boottime
from .wires import Line, Said, Wire

Server = TypeVar("Server")


class Question(Generic[Server]):
    """``command`` is sent on each line before an answer is read from any.

    Only a wire whose answer was read whole is given back. Any other is closed: what is said on it later is not heard
    by anybody.
    """

    def __init__(self, command: bytes) -> None:
        self._command = command
        self._asked: list[tuple[Server, Line, Wire]] = []
        self._said: list[tuple[Server, Said]] = []

    def put(self, servers: Iterable[tuple[Server, Line]]) -> list[Server]:
        """Ask each server, which the answers will name as given. Returns those to which no wire is open."""
        strangers = []
        for to, line in servers:
            if (wire := line.idle()) is None:
                strangers.append(to)
                continue
            try:
                wire.send(self._command)
            except RedisError as error:
                wire.close()
                self._said.append((to, error))
            else:
                self._asked.append((to, line, wire))
        return strangers

    def answers(self, patience: float) -> list[tuple[Server, Said]]:
        """What each server said within ``patience`` seconds for all of them; what has arrived by then is read.

        The one asked last is heard first: when it has answered, the others mostly have, and nobody was woken for
        each of them.
        """
        until = boottime() + patience
        try:
            while self._asked:
                to, line, wire = self._asked.pop()
                self._said.append((to, _heard(line, wire, until)))
        finally:
            for _, _, wire in self._asked:  # something of ours was raised in the middle
                wire.close()
        return self._said


def _heard(line: Line, wire: Wire, until: float) -> Said:
    try:
        said = wire.receive(until)
    except BaseException as error:
        wire.close()
        if isinstance(error, RedisError):
            return error
        raise
    line.give_back(wire, said)
    return said
