"""The processes of a soak: beats, workers, and one worker that reaches its stores through proxies only."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from aegis_site.embedded import ChildProcess, Services
from aegis_site.project_processes import beat_is_ready, celery, worker_is_ready
from locks.proxy import TcpProxy

CHILDREN = 6  # bodies that one worker runs at the same time
READY_WITHIN = 120.0  # seconds
STOP_WITHIN = 40.0  # seconds for a worker to finish the bodies it is in


class SoakError(Exception):
    """The soak cannot go on; the message says why and what to do."""


class Fleet:
    """Starts, kills, freezes and restarts. Worker 0 lives behind ``proxies``; everything else reaches all stores."""

    def __init__(self, services: Services, *, workers: int, beats: int, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._generation = itertools.count(1)
        self.proxies = [TcpProxy(upstream) for upstream in _upstreams(services)]
        self._behind = _addresses(services, [proxy.port for proxy in self.proxies])
        self.workers = [self._worker(number) for number in range(workers)]
        self.beats: list[ChildProcess] = []
        self._wanted_beats = beats

    def await_ready(self) -> None:
        """Return when every worker takes messages and every beat passes."""
        give_up = time.monotonic() + READY_WITHIN
        while late := self._not_ready():
            ended = next((process for process in late if not process.running), None)
            if ended is not None or time.monotonic() > give_up:
                who = ended or late[0]
                raise SoakError(f"{who.name} did not become ready: {who.last_line()!r}. Its log is {who.log}.")
            time.sleep(0.1)

    def _not_ready(self) -> list[ChildProcess]:
        workers = [worker for worker in self.workers if not worker_is_ready(worker)]
        return workers + [beat for beat in self.beats if not beat_is_ready(beat)]

    def start_beats(self) -> None:
        """Start them all; ``await_ready()`` waits for them."""
        self.beats = [self._beat(number) for number in range(self._wanted_beats)]

    def restart_worker(self, number: int) -> None:
        """Put a new worker in the place of one that has ended; it gets ready by itself."""
        self.workers[number] = self._worker(number)

    def restart_beat(self, number: int) -> None:
        self.beats[number] = self._beat(number)

    def pids(self, number: int) -> frozenset[int]:
        """The processes of one worker: itself and its children."""
        pid = self.workers[number].pid
        try:
            return frozenset({pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))})
        except psutil.NoSuchProcess:
            return frozenset({pid})

    def stop_beats(self) -> None:
        _stop(self.beats)

    def stop(self) -> None:
        """End everything, in order."""
        self.stop_beats()
        _stop(self.workers)
        for proxy in self.proxies:
            proxy.close()

    def _worker(self, number: int) -> ChildProcess:
        generation = next(self._generation)
        return celery(
            f"worker-{number}.{generation}", "worker", "-n", f"worker{number}-{generation}@soak", "-c", str(CHILDREN),
            "--without-mingle", "--without-gossip", logs=self._logs, env=self._behind if number == 0 else None,
        )  # fmt: skip

    def _beat(self, number: int) -> ChildProcess:
        pid_file = self._logs / f"beat-{number}.pid"
        pid_file.unlink(missing_ok=True)  # of one that was killed
        name = f"beat-{number}.{next(self._generation)}"
        return celery(name, "beat", "--pidfile", str(pid_file), logs=self._logs)


def _stop(processes: list[ChildProcess]) -> None:
    for process in processes:
        process.ask_to_stop()
    for process in processes:
        process.stop(timeout=STOP_WITHIN)
    processes.clear()


def _upstreams(services: Services) -> list[tuple[str, int] | str]:
    """PostgreSQL's socket, the Redis of the locks, the nodes of the quorum; the broker is not cut off."""
    nodes = [services.redis["locks"], *services.quorum]
    return [f"{services.postgres.sockets}/.s.PGSQL.5432", *(("127.0.0.1", node.port) for node in nodes)]


def _addresses(services: Services, ports: list[int]) -> Mapping[str, str]:
    """The environment of a process that reaches the stores through proxies at ``ports``."""
    env = services.env()
    database = urlsplit(env["DATABASE_URL"])
    quorum = [_moved(url, port) for url, port in zip(env["REDLOCK_URLS"].split(","), ports[2:], strict=True)]
    return {
        "DATABASE_URL": f"postgres://{database.username}@127.0.0.1:{ports[0]}{database.path}",
        "REDIS_URL": _moved(env["REDIS_URL"], ports[1]),
        "REDLOCK_URLS": ",".join(quorum),
        "PGSSLMODE": "disable",
        "SECRET_KEY": os.environ.get("SECRET_KEY", "soak"),
    }


def _moved(url: str, port: int) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))
