"""Free ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from aegis_site.embedded.errors import EmbeddedError

LOWEST = 20_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(tries: int = 200) -> int:
    """Return a port of 127.0.0.1 that nobody listened on a moment ago.

    Taken from below the range that the kernel hands out to outgoing connections: while a server is stopped
    by a test, no connection of anybody can take its port. Another process may still be faster: be ready to
    try again.
    """
    highest = _ephemeral_start()
    for _ in range(tries):
        port = random.randint(LOWEST, highest - 1)  # noqa: S311 - no secret
        if is_free(port):
            return port
    raise EmbeddedError(f"No free port found between {LOWEST} and {highest - 1} on 127.0.0.1.")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection's wait does not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _ephemeral_start() -> int:
    try:
        start = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        start = 32_768
    return start if start > LOWEST + 1_000 else 49_152
