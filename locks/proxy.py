"""A TCP proxy with faults, to stand between a client and a real server.

A refused connection is a fast failure and no partition. This can also do what a partition does: take the
request, let the server carry it out, and lose the answer.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""

_CHUNK = 65536


class TcpProxy:
    """Forwards ``127.0.0.1:port`` to ``upstream``. A context manager; starts healthy.

    ``cut()`` ends all connections and refuses new ones. ``swallow_answers()`` forwards requests and drops
    answers; ``lose_all()`` drops both. ``hold_answers()`` keeps them back until ``heal()``, which delivers them
    late and undoes the other faults; connections that have lost something stay broken until they are ended with
    ``end_broken()``: by then a real network would have sent again, or reset them.
    """

    def __init__(self, upstream: Address) -> None:
        self.upstream = upstream
        self.requests = 0  # pieces forwarded to the server, to see that something was sent
        self.dropped = 0  # pieces and connections that a fault has lost, to see that it was felt
        self.held = 0  # answers kept back, to see that the server has done what it was asked
        self._mode = "healthy"
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._broken: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True).start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        self._mode = "cut"
        self.dropped += len(self._sockets)
        self._end_connections()

    def swallow_answers(self) -> None:
        self._mode = "swallow"

    def lose_all(self) -> None:
        self._mode = "lose"

    def hold_answers(self) -> None:
        self._flowing.clear()

    def heal(self) -> None:
        self._mode = "healthy"
        self._flowing.set()

    def end_broken(self) -> None:
        """End the connections that have lost something; their clients would wait for it for ever."""
        with self._lock:
            broken = list(self._broken)
        self._end(*broken)

    def close(self) -> None:
        """End everything. The proxy cannot be used again."""
        self._mode = "cut"
        self._flowing.set()
        with contextlib.suppress(OSError):  # wakes the thread that waits in accept()
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_connections()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self._mode == "cut":
                self.dropped += 1
                client.close()
                continue
            try:
                server = _connect(self.upstream)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            for source, target, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, target, is_answer), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):  # either side has gone: the other is told below
            while data := source.recv(_CHUNK):
                if is_answer:
                    self.held += not self._flowing.is_set()
                    self._flowing.wait()
                if self._mode == "cut":  # what comes between the cut and the end of this wire is lost
                    break
                if self._mode == "lose" or (is_answer and self._mode == "swallow"):
                    self.dropped += 1
                    with self._lock:
                        self._broken |= {source, target}
                    continue
                self.requests += not is_answer
                target.sendall(data)
        self._end(source, target)

    def _end_connections(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        self._end(*sockets)

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):  # closed already
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._sockets.difference_update(sockets)
            self._broken.difference_update(sockets)


def _connect(upstream: Address) -> socket.socket:
    if isinstance(upstream, str):
        server = socket.socket(socket.AF_UNIX)
        server.connect(upstream)
        return server
    return socket.create_connection(upstream)
