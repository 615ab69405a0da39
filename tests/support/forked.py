"""Processes of a fork server: how a test starts and follows them. What they are is told in ``forkserver``."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from aegis_site.embedded import ChildProcess, spawn

STARTS_WITHIN = 60  # seconds
PROJECT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).with_name("forkserver.py")


class Forked:
    """A process of the fork server, as `subprocess.Popen` would show it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("r")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, a signal's number negated; None while it runs."""
        self._hear(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, `timeout` seconds later at most. Raises subprocess.TimeoutExpired."""
        self._hear(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _hear(self, timeout: float | None) -> None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(self._answers.readline() or -signal.SIGKILL)  # without a server they are killed
            self._answers.close()
            self._connection.close()


class ForkServer:
    """The server's side of the starter."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aegis-fork-")
        self._address = str(Path(self._folder.name) / "socket")
        log = Path(self._folder.name) / "log"
        command = [sys.executable, "-u", SERVER, self._address]
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self._process = spawn("forkserver", command, log=log, env=environment, cwd=PROJECT)

    def start(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> ChildProcess:
        """Fork a process that is `python -m COMMAND`, a module and its arguments."""
        request = {"command": command, "log": str(log), "env": dict(env)}
        log.touch()
        connection = self._connect()
        connection.sendall(json.dumps(request).encode() + b"\n")
        return ChildProcess(name, Forked(connection), log, signal.SIGTERM)  # type: ignore[arg-type]

    def stop(self) -> None:
        """End it, and what it has started."""
        self._process.kill()
        self._folder.cleanup()

    def _connect(self) -> socket.socket:
        give_up = time.monotonic() + STARTS_WITHIN
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self._address)
                return connection
            except OSError:
                connection.close()
                if time.monotonic() > give_up or not self._process.running:
                    raise
            time.sleep(0.02)


@cache
def fork_server() -> ForkServer:
    """That of this session, started when it is first asked for."""
    return ForkServer()


def stop_fork_server() -> None:
    """At the end of the session."""
    if fork_server.cache_info().currsize:
        fork_server().stop()
        fork_server.cache_clear()
