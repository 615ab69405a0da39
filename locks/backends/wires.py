"""Open connections to Redis servers, each for one exchange at a time and kept for the next.

The connection itself is the library's: address, greeting, password, TLS. Its client is not used for the scripts of
the locks, for two reasons. A quorum is asked by one thread, which sends to every node before it reads from any;
handing each node to a thread took longer than the answers. And the client's way around a command took as long as the
command, its parser's way around ``:1`` half as long.

What must hold: an answer is never read by a later question. So a wire whose exchange was not finished, for whatever
reason, is closed; and one that has something to say before it was asked was closed by the server, or is out of step.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, cast

import redis
from redis.exceptions import InvalidResponse, ReadOnlyError, RedisError

from ..clock import boottime
from .replies import Word, packed, parsed

_MOST_IDLE = 32  # wires to one server that are kept
_AT_ONCE = 4096  # bytes; more than any answer to a script of ours
_OF_THE_WIRE = (redis.ConnectionError, ReadOnlyError)

Said = Any | RedisError
"""What a server said, or why it said nothing."""


class Wire:
    """One connection, made when something is sent for the first time."""

    def __init__(self, client: redis.Redis) -> None:
        pool = client.connection_pool
        self._connection = pool.connection_class(**pool.connection_kwargs)
        self._poll = select.poll()
        self._socket: socket.socket | None = None  # before the first command, and after the end

    def send(self, command: bytes) -> None:
        """Raises ``RedisError``; the wire is to be closed then."""
        ours = self._socket or self._connected()
        try:
            ours.sendall(command)
        except OSError as error:  # also when it would have to wait: the server has not read the last command
            raise redis.ConnectionError(f"could not send: {error}") from error

    def _connected(self) -> socket.socket:
        self._connection.connect()
        ours = cast("socket.socket", self._connection._sock)  # the library tells it in no other way
        ours.setblocking(False)  # with a time-out, Python asks before each send and read whether it would wait
        self._poll.register(ours, select.POLLIN)
        self._socket = ours
        return ours

    def receive(self, until: float) -> Said:
        """The whole answer, also if that is an error. Raises ``RedisError`` if there is none ``until`` (boottime)
        or one too many; the wire is to be closed then.
        """
        data = self._read(until)
        while (reply := parsed(data)) is None:
            if boottime() > until:
                raise redis.TimeoutError("no whole answer in time")
            data += self._read(until)
        said, end = reply
        if end < len(data):
            raise InvalidResponse("the server said more than it was asked")
        return said

    def _read(self, until: float) -> bytes:
        if self._socket is None:
            raise redis.ConnectionError("the wire is closed")
        while True:
            try:
                data = self._socket.recv(_AT_ONCE)
            except (BlockingIOError, ssl.SSLWantReadError):
                if not self._poll.poll(max(0.0, until - boottime()) * 1000):
                    raise redis.TimeoutError("no answer in time") from None
            except OSError as error:
                raise redis.ConnectionError(f"could not read: {error}") from error
            else:
                if data:
                    return data
                raise redis.ConnectionError("the server has hung up")

    def has_gone(self) -> bool:
        """Whether there is something to read, though nothing was asked: the server has hung up."""
        return self._socket is None or bool(self._poll.poll(0))

    def close(self) -> None:
        self._socket = None
        self._connection.disconnect()

    def __del__(self) -> None:
        """Given back after its line was closed, by a thread that still owed a release: nobody else closes it."""
        with contextlib.suppress(AttributeError, OSError, redis.RedisError):  # half made, or gone already
            self.close()


class Line:
    """All wires of this process to one server. Any number of threads may use it."""

    def __init__(self, client: redis.Redis, timeout: float) -> None:
        self.client = client
        self._timeout = timeout
        self._idle: list[Wire] = []

    def exchange(self, words: Sequence[Word]) -> Any:
        """The answer to one command; connects if no wire is open. Raises ``RedisError``. Sends nothing twice."""
        wire = self.idle() or Wire(self.client)
        try:
            wire.send(packed(words))
            said = wire.receive(boottime() + self._timeout)
        except BaseException:
            wire.close()
            raise
        self.give_back(wire, said)
        if isinstance(said, RedisError):
            raise said
        return said

    def idle(self) -> Wire | None:
        """An open wire for the caller alone. ``None``: there is none."""
        try:
            while (wire := self._idle.pop()).has_gone():
                wire.close()
        except IndexError:
            return None
        return wire

    def give_back(self, wire: Wire, said: Said) -> None:
        """After a finished exchange only. A server that wants a login first, or only reads now, may be another one or
        take it at the next greeting, so its wire is closed.
        """
        if len(self._idle) < _MOST_IDLE and not isinstance(said, _OF_THE_WIRE):
            self._idle.append(wire)
        else:
            wire.close()

    def close(self) -> None:
        """Close the wires that no thread is using at the moment."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()
