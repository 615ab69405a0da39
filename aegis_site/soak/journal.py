"""The independent ledger: what the bodies say of themselves, in one file a process.

A file and not a table, because a body goes on while the database is away, and that is when it matters. Stamps are
``boottime()``, one clock for all processes of a machine. A line is one ``write`` to a file opened for appending, so
that a process that is killed leaves whole lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aegis_site.demo.tasks import DatabaseClock
from locks import LeaseLost, StaleToken
from locks.clock import boottime
from scheduler import RunContext

__all__ = ["FOLDER", "DatabaseClock", "Line", "lines", "note", "stay"]

# Names the folder, for the processes of a soak.
FOLDER = "AEGIS_SOAK_JOURNAL"

Line = dict[str, Any]


def note(event: str, context: RunContext) -> None:
    """Write down that ``event`` happens now in the body of ``context``."""
    line = {
        "at": boottime(), "pid": os.getpid(), "event": event, "execution": context.execution_id,
        "tick": context.tick_id, "attempt": context.attempt, "schedule": context.schedule,
        "subject": context.scheduled_for.isoformat(), "name": context.lock_name, "alias": context.lock_alias,
        "token": context.fencing_token,
    }  # fmt: skip
    file = os.open(Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


@contextmanager
def stay(context: RunContext) -> Iterator[None]:
    """Note the entering of a body and how it was left: ``left``, ``lost`` or ``raised``."""
    note("entered", context)
    try:
        yield
    except (LeaseLost, StaleToken):
        note("lost", context)
        raise
    except BaseException:  # also SystemExit: what ends a body is noted, whatever it is
        note("raised", context)
        raise
    note("left", context)


def lines(folder: Path) -> list[Line]:
    """Every line of every process, in the order of time."""
    found = [json.loads(text) for path in folder.glob("*.jsonl") for text in path.read_text().splitlines()]
    return sorted(found, key=lambda line: line["at"])
