"""Start a Python program or a Celery process of this project, with a log file of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from aegis_site.embedded import ChildProcess, spawn


def python(name: str, *arguments: str, logs: Path, env: Mapping[str, str] | None = None) -> ChildProcess:
    """Start `python ARGUMENTS`; `env` is added to the environment. Its log is a new file `logs`/`name`.log."""
    log = logs / f"{name}.log"
    log.unlink(missing_ok=True)
    return spawn(
        name, [sys.executable, *arguments], log=log, env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
    )


def celery(name: str, *arguments: str, logs: Path, env: Mapping[str, str] | None = None) -> ChildProcess:
    """Start `celery -A aegis_site ARGUMENTS`."""
    return python(name, "-m", "celery", "-A", "aegis_site", *arguments, "-l", "INFO", logs=logs, env=env)


def worker_is_ready(process: ChildProcess) -> bool:
    """Whether a worker has said that it takes messages."""
    return " ready." in process.log.read_text(errors="replace")


def beat_is_ready(process: ChildProcess) -> bool:
    """Whether a beat has begun its passes."""
    return "beat: Starting..." in process.log.read_text(errors="replace")
