"""The demo's processes: one web server, some beats, some workers; real ones, each with a log file."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

from aegis_site.embedded import ChildProcess
from aegis_site.project_processes import beat_is_ready, celery, python, worker_is_ready

# Bodies that one worker runs at the same time.
CONCURRENCY = 3


class FleetError(Exception):
    """A process could not be started or ended too early; the message says which and what to do."""


class Fleet:
    """Starts the processes and ends them; they also end with this process, whatever ends it."""

    def __init__(self, *, workers: int, beats: int, port: int, logs: Path) -> None:
        self.port = port
        self.logs = logs
        self.url = f"http://127.0.0.1:{port}/admin/"
        self.web: ChildProcess | None = None
        self.workers: list[ChildProcess] = []
        self.beats: list[ChildProcess] = []
        self._wanted = (workers, beats)
        logs.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start all of them. The catalog is still empty: the first tick is to find everybody listening."""
        self.web = python(
            "web", "-m", "gunicorn", "aegis_site.wsgi", "--bind", f"127.0.0.1:{self.port}", "--threads", "4",
            "--no-control-socket", logs=self.logs,
        )  # fmt: skip
        for number in range(1, self._wanted[0] + 1):
            self.workers.append(
                celery(
                    f"worker-{number}", "worker", "-n", f"worker{number}@demo", "-c", str(CONCURRENCY),
                    "--without-mingle", "--without-gossip", logs=self.logs,
                )
            )  # fmt: skip

        for number in range(1, self._wanted[1] + 1):
            pid_file = self.logs / f"beat-{number}.pid"
            pid_file.unlink(missing_ok=True)
            self.beats.append(celery(f"beat-{number}", "beat", "--pidfile", str(pid_file), logs=self.logs))

    def ready(self) -> bool:
        """Whether every process does its work and the pages answer. Raises ``FleetError`` where one has ended."""
        self.check()
        listening = all(worker_is_ready(worker) for worker in self.workers)
        listening = listening and all(beat_is_ready(beat) for beat in self.beats)
        return listening and _answers(f"http://127.0.0.1:{self.port}/healthz")

    def check(self) -> None:
        """Raise ``FleetError`` for the first process that has ended by itself."""
        for process in self._all():
            if not process.running:
                raise FleetError(
                    f"{process.name} ended with status {process.returncode}: {process.last_line()!r}. "
                    f"Its log is {process.log}."
                )

    def stop_beats(self) -> None:
        _stop(self.beats)

    def stop(self) -> None:
        """Stop everything that runs, beats first."""
        self.stop_beats()
        _stop(self.workers)
        _stop([self.web] if self.web else [])

    def _all(self) -> list[ChildProcess]:
        return [*([self.web] if self.web else []), *self.workers, *self.beats]


def free_port(wanted: int) -> int:
    """``wanted`` if nobody listens there, any free one for 0. Raises ``FleetError`` with the remedy."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as taken:
            raise FleetError(
                f"Port {wanted} cannot be used: {taken.strerror}. Name another with --port, or --port 0 for any."
            ) from taken
        return int(probe.getsockname()[1])


def _stop(processes: list[ChildProcess]) -> None:
    for process in processes:
        process.ask_to_stop()
    for process in processes:
        process.stop(timeout=15)
    processes.clear()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own loopback address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
