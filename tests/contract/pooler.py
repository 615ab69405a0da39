"""A transaction pooler in miniature: each transaction of a client goes to whichever session of the server is idle."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO

from locks.proxy import Address

_NO_ENCRYPTION = {80877103, 80877104}  # requests for TLS and for GSS
_KEY_DATA = b"K"
_READY = b"Z"
_END_OF_REQUEST = {b"Q", b"S"}  # a simple query; Sync after the parts of an extended one
_TERMINATE = b"X"

Message = tuple[bytes, bytes]


class _Server:
    """One session of PostgreSQL, and what it said when it was made."""

    def __init__(self, address: Address, startup: bytes) -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address)
        self.answers = self.socket.makefile("rb")
        self.socket.sendall(startup)
        self.greeting = list(_until_ready(self.answers))


class TransactionPooler:
    """Listens on ``127.0.0.1:port`` for clients of the PostgreSQL at ``upstream``. A context manager.

    As PgBouncer does, it announces a process number of its own to each client; ``honest``: the one of the session
    that serves the client first.
    """

    def __init__(self, upstream: Address, *, honest: bool) -> None:
        self.upstream = upstream
        self.honest = honest
        self.handed_out = 0  # times that a session was given to a client
        self._idle: list[_Server] = []
        self._clients: list[socket.socket] = []
        self._servers: list[_Server] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> TransactionPooler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._listener, *self._clients, *(server.socket for server in self._servers)):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it
        for thread in self._threads:
            thread.join(timeout=10)
        for server in self._servers:
            server.answers.close()
            server.socket.close()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as requests, contextlib.suppress(OSError, EOFError):
            startup = _startup(client, requests)
            server = self._borrow(startup)
            greeting = [message if self.honest else _renumbered(message) for message in server.greeting]
            client.sendall(b"".join(_packed(message) for message in greeting))
            self._idle.append(server)
            self._relay(client, requests, startup)

    def _relay(self, client: socket.socket, requests: BinaryIO, startup: bytes) -> None:
        server: _Server | None = None
        while (request := _read(requests))[0] != _TERMINATE:
            server = server or self._borrow(startup)
            server.socket.sendall(_packed(request))
            if request[0] in _END_OF_REQUEST:
                for answer in _until_ready(server.answers):
                    client.sendall(_packed(answer))
                if answer[1] == b"I":  # not in a transaction: the session is anybody's
                    self._idle.append(server)
                    server = None

    def _borrow(self, startup: bytes) -> _Server:
        """The session that was used last, as poolers do, else a new one."""
        self.handed_out += 1
        if self._idle:
            return self._idle.pop()
        server = _Server(self.upstream, startup)
        self._servers.append(server)
        return server


def _startup(client: socket.socket, requests: BinaryIO) -> bytes:
    while True:
        head = _exactly(requests, 8)
        length, code = struct.unpack("!ii", head)
        if code not in _NO_ENCRYPTION:
            return head + _exactly(requests, length - 8)
        client.sendall(b"N")


def _until_ready(answers: BinaryIO) -> Iterator[Message]:
    while True:
        message = _read(answers)
        yield message
        if message[0] == _READY:
            return


def _renumbered(message: Message) -> Message:
    return (_KEY_DATA, struct.pack("!i", 7) + message[1][4:]) if message[0] == _KEY_DATA else message


def _read(stream: BinaryIO) -> Message:
    kind = _exactly(stream, 1)
    (length,) = struct.unpack("!i", _exactly(stream, 4))
    return kind, _exactly(stream, length - 4)


def _packed(message: Message) -> bytes:
    return message[0] + struct.pack("!i", len(message[1]) + 4) + message[1]


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
