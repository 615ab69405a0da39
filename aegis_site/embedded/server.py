"""What an embedded PostgreSQL and an embedded Redis have in common."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aegis_site.embedded.errors import EmbeddedError
from aegis_site.embedded.identity import Identity
from aegis_site.embedded.processes import ChildProcess, spawn

READY_WITHIN = 60.0  # seconds; a first start on a busy machine takes two
POLL = 0.02  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the servers of one instance keep their files, and who they run as."""

    data: Path  # a folder for each server, removed with the instance
    sockets: Path  # short: the path of a Unix socket may have 107 characters
    logs: Path
    identity: Identity | None


class Server(ABC):
    """One server process over one data folder and one address, that can be stopped and started again.

    `start()`, `stop()`, `kill()` (a crash), `pause()` and `resume()` (it hangs: connections open, no
    answers) are for whoever shows or tests faults. The address stays the same over all of them.
    """

    stop_signal = signal.SIGTERM

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.log = place.logs / f"{name}.log"
        self.process: ChildProcess | None = None
        self._said_before = 0  # bytes of the log that earlier processes wrote

    @property
    @abstractmethod
    def url(self) -> str:
        """The address with its password, for a client in this or another process. Never log it."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Start the server and return when it answers; nothing to do when it runs. Raises EmbeddedError."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the server and return at once."""
        if not self.running:
            self._spawn(self._command())

    def await_ready(self, within: float = READY_WITHIN) -> None:
        """Return when the launched server answers; EmbeddedError when it ended or `within` seconds passed."""
        give_up = time.monotonic() + within
        while self.running and not self._answers():
            if time.monotonic() > give_up:
                raise self._failure(f"did not answer within {within:.0f} seconds")
            time.sleep(POLL)
        if not self.running:
            raise self._failure("ended while starting")

    def stop(self) -> None:
        """Shut the server down in an orderly way; nothing to do when it does not run."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """Crash the server: SIGKILL, nothing is written or said."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Freeze the server. Its clients' connections stay open and are not answered."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """Let a frozen server go on."""
        if self.process is not None:
            self.process.resume()

    def said(self) -> list[str]:
        """The lines that the present process has logged, without empty ones."""
        text = self.log.read_bytes()[self._said_before :].decode(errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]

    def _spawn(self, command: Sequence[str | Path]) -> ChildProcess:
        """Start a process of this server, in its log and as its user."""
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        self.process = spawn(
            self.name,
            command,
            log=self.log,
            env=self._environment(),
            cwd=Path("/"),
            stop_signal=self.stop_signal,
            death_signal=self.stop_signal,
            identity=self.place.identity,
        )
        return self.process

    def _environment(self) -> dict[str, str]:
        return clean_environment()

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """The program and its arguments."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a client gets an answer now."""

    def _failure(self, what: str) -> EmbeddedError:
        cause = self._cause(self.said())
        return EmbeddedError(f"{self.name} {what}: {cause}. {self._remedy(cause)}")

    def _cause(self, said: list[str]) -> str:
        """The line that tells why the process ended: the last one."""
        return said[-1] if said else "it said nothing"

    def _remedy(self, cause: str) -> str:
        if "No space left on device" in cause:
            return f"Free some space on the disk of {self.place.data}, or set DATABASE_URL to another server."
        return f"Its log is {self.log}."


def clean_environment() -> dict[str, str]:
    """The environment for a server: messages in English, and nothing that the user set, such as PGDATA.

    Where programs depend on LD_LIBRARY_PATH, the interpreter that starts the server may be one of them.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}
