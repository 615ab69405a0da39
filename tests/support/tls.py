"""A way to a Redis server that is encrypted, as managed ones are: TLS ends here, and the bytes go on in the clear."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme

PATIENCE = 10.0  # seconds for a handshake, and for a thread to end


class TlsDoor:
    """Listens on ``port`` of 127.0.0.1; ``accepted`` counts the connections. Each has a thread of its own."""

    def __init__(self, target: tuple[str, int], context: ssl.SSLContext) -> None:
        self.accepted = 0
        self._target, self._context = target, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                self._open.append(client)
                self._threads.append(threading.Thread(target=self._pass, args=(client,), daemon=True))
                self._threads[-1].start()

    def _pass(self, client: socket.socket) -> None:
        client.settimeout(PATIENCE)
        with (
            client,
            suppress(OSError),
            socket.create_connection(self._target, PATIENCE) as server,
            self._context.wrap_socket(client, server_side=True) as near,
        ):
            self._open.append(near)
            while True:
                ready = [near] if near.pending() else select.select([near, server], [], [])[0]
                for side in ready:
                    data = side.recv(65536)
                    if not data:
                        return
                    (server if side is near else near).sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._open:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)


@contextmanager
def tls_door(host: str, port: int, signer: trustme.CA) -> Iterator[TlsDoor]:
    """A door to ``host:port`` whose certificate ``signer`` has signed for 127.0.0.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    signer.issue_cert("127.0.0.1").configure_cert(context)
    door = TlsDoor((host, port), context)
    try:
        yield door
    finally:
        door.close()


def authority(folder: Path) -> tuple[trustme.CA, Path]:
    """Who signs, and the file by which clients know that."""
    signer = trustme.CA()
    known = folder / "authority.pem"
    signer.cert_pem.write_to_path(str(known))
    return signer, known
