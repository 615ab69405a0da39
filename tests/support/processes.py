"""Real Celery workers and beats on the test database."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from django.db import connections

from aegis_site.embedded import ChildProcess, spawn
from tests.support.forked import fork_server
from tests.support.waiting import wait_until

CELERY = ("celery", "-A", "aegis_site")
PROJECT = Path(__file__).resolve().parent.parent.parent


def database_url(alias: str = "default") -> str:
    """The address of the test database, which is not the configured one."""
    settings = connections[alias].settings_dict
    user, password = quote(settings["USER"], safe=""), quote(settings["PASSWORD"], safe="")
    login = f"{user}:{password}" if password else user
    if settings["HOST"].startswith("/"):
        return f"postgres://{login}@/{settings['NAME']}?host={settings['HOST']}"
    port = f":{settings['PORT']}" if settings["PORT"] else ""
    return f"postgres://{login}@{settings['HOST']}{port}/{settings['NAME']}"


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database_url(), "PYTHONUNBUFFERED": "1", **(more or {})}


class CeleryProcesses:
    """Starts processes for one test and ends them with it. Their logs are files under `logs`."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.started: list[ChildProcess] = []

    def worker(
        self,
        *arguments: str,
        name: str = "",
        concurrency: int = 1,
        pool: str = "prefork",
        env: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start a worker and return when it takes messages. `env` is added to the environment."""
        name = name or f"worker-{len(self.started) + 1}"
        options = (
            "-n",
            f"{name}@test",
            "-c",
            str(concurrency),
            "-P",
            pool,
            "--without-mingle",
            "--without-gossip",
        )
        start = self._forked if pool in ("prefork", "threads", "solo") else self._run  # others patch what is imported
        process = start(name, ("worker", *options, "-l", "INFO", *arguments), env)
        return self._ready(process, f"{name}@test ready.")

    def beat(self, *arguments: str, name: str = "", env: Mapping[str, str] | None = None) -> ChildProcess:
        """Start a beat and return when its scheduler has begun."""
        name = name or f"beat-{len(self.started) + 1}"
        pid_file = self.logs / f"{name}.pid"
        process = self._forked(name, ("beat", "-l", "INFO", "--pidfile", str(pid_file), *arguments), env)
        return self._ready(process, "beat: Starting...")

    def python(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> ChildProcess:
        """Start `python ARGUMENTS` in the project, on the test database, and return at once."""
        command = [sys.executable, *arguments]
        process = spawn(name, command, log=self._log(name), env=_environment(env), cwd=PROJECT)
        self.started.append(process)
        return process

    def stop(self) -> None:
        """Ask all processes to stop at once, then wait for them; those that still have a body inside are killed."""
        for process in self.started:
            process.ask_to_stop()
        for process in self.started:
            process.stop(timeout=3)

    def _forked(self, name: str, arguments: tuple[str, ...], env: Mapping[str, str] | None) -> ChildProcess:
        celery = (*CELERY, *arguments)
        process = fork_server().start(name, celery, log=self._log(name), env=_environment(env))
        self.started.append(process)
        return process

    def _run(self, name: str, arguments: tuple[str, ...], env: Mapping[str, str] | None) -> ChildProcess:
        return self.python(name, "-m", *CELERY, *arguments, env=env)

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _ready(self, process: ChildProcess, said: str) -> ChildProcess:
        wait_until(lambda: self._has_said(process, said), timeout=60, message=f"{process.name} said {said!r}")
        return process

    @staticmethod
    def _has_said(process: ChildProcess, text: str) -> bool:
        said = process.log.read_text(errors="replace")
        assert process.running, f"{process.name} ended with status {process.returncode}:\n{said[-4000:]}"
        return text in said
