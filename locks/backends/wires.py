"""Open connections to Redis servers, each for one exchange at a time and kept for the next.

The connection itself is the library's: protocol, greeting, password, TLS. Its client is not used for the scripts of
the locks, for two reasons. A quorum is asked by one thread, which sends to every node before it reads from any;
handing each node to a thread took longer than the answers. And the client's way around a command took as long as the
command.

What must hold: an answer is never read by a later question. So a wire whose exchange was not finished, for whatever
reason, is closed; and one that has something to say before it was asked was closed by the server, or is out of step.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Sequence
from typing import Any, cast

import redis
from redis.exceptions import ResponseError

_MOST_IDLE = 32  # wires to one server that are kept

Word = str | int


class Wire:
    """One connection, made when something is sent for the first time."""

    def __init__(self, client: redis.Redis) -> None:
        pool = client.connection_pool
        self._connection = pool.connection_class(**pool.connection_kwargs)
        self._poll: select.poll | None = None

    @property
    def socket(self) -> socket.socket | None:
        """``None`` before the first command, and after the end."""
        return cast("socket.socket | None", self._connection._sock)  # the library tells it in no other way

    def packed(self, words: Sequence[Word]) -> Sequence[bytes]:
        """A command as it is sent, the same to every server: for ``send``."""
        return cast("Sequence[bytes]", self._connection.pack_command(*words))

    def send(self, command: Sequence[bytes]) -> None:
        """Raises ``RedisError``; the wire is to be closed then."""
        self._connection.send_packed_command(command)

    def receive(self) -> Any:
        """The answer. Raises ``ResponseError`` if that is an error, and another ``RedisError`` if there is none."""
        return self._connection.read_response()

    def has_gone(self) -> bool:
        """Whether there is something to read, though nothing was asked: the server has hung up."""
        if (ours := self.socket) is None:
            return True
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(ours, select.POLLIN)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._connection.disconnect()

    def __del__(self) -> None:
        """Given back after its line was closed, by a thread that still owed a release: nobody else closes it."""
        with contextlib.suppress(AttributeError, OSError, redis.RedisError):  # half made, or gone already
            self.close()


class Line:
    """All wires of this process to one server. Any number of threads may use it."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._idle: list[Wire] = []

    def exchange(self, words: Sequence[Word]) -> Any:
        """The answer to one command; connects if no wire is open. Raises ``RedisError``. Sends nothing twice."""
        wire = self._open() or Wire(self.client)
        try:
            wire.send(wire.packed(words))
            answer = wire.receive()
        except ResponseError:
            self.give_back(wire)
            raise
        except BaseException:
            wire.close()
            raise
        self.give_back(wire)
        return answer

    def idle(self) -> Wire | None:
        """A wire for the caller alone, which the server may have hung up meanwhile. ``None``: there is none."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open(self) -> Wire | None:
        while (wire := self.idle()) is not None and wire.has_gone():
            wire.close()
        return wire

    def give_back(self, wire: Wire) -> None:
        """After a finished exchange only."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(wire)
        else:
            wire.close()

    def close(self) -> None:
        """Close the wires that no thread is using at the moment."""
        while (wire := self.idle()) is not None:
            wire.close()
