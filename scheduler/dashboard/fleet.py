"""Beats and workers as their presence tells: how each is, what it runs, what it did in the last hour."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import connection

from scheduler.charts.scale import duration_words
from scheduler.dashboard.header import FORGOTTEN

MOST_PROCESSES = 500
MOST_RUNNING = 500

# in:  most, and whether those are wanted that are gone for long (forgotten, seconds). out: by the database's clock.
_PROCESSES = """
SELECT id, kind, name, host, pid, version, pool, concurrency, queues, clock_offset, clock_error, started_at,
       heartbeat_at, stopped_at, extract(epoch FROM clock_timestamp() - heartbeat_at)::float8
FROM aegis_scheduler_instance
WHERE %(all)s OR coalesce(stopped_at, heartbeat_at) > clock_timestamp() - make_interval(secs => %(forgotten)s)
ORDER BY stopped_at IS NOT NULL, kind, name, started_at DESC LIMIT %(most)s
"""
_HIDDEN = """
SELECT count(*) FROM aegis_scheduler_instance
WHERE coalesce(stopped_at, heartbeat_at) <= clock_timestamp() - make_interval(secs => %(forgotten)s)
"""
# out: executions of the last hour by the worker's name: ran, prevented (by a lock or the tick guard), failed.
_LAST_HOUR = """
SELECT worker, count(*) FILTER (WHERE state = 'executed'),
       count(*) FILTER (WHERE state IN ('prevented', 'duplicate')),
       count(*) FILTER (WHERE state IN ('failed', 'lost', 'abandoned'))
FROM aegis_scheduler_execution WHERE recorded_at > clock_timestamp() - interval '1 hour' GROUP BY worker
"""
_RUNNING = """
SELECT e.worker, e.pid, e.id, coalesce(nullif(t.schedule_name, ''), t.task)
FROM aegis_scheduler_execution e JOIN aegis_scheduler_tick t ON t.id = e.tick_id
WHERE e.state = 'running' ORDER BY e.started_at LIMIT %(most)s
"""


class Health(StrEnum):
    """How a process is, in one word."""

    HEALTHY = "Healthy"
    LATE = "Late"
    GONE = "Gone"
    STOPPED = "Stopped"

    @property
    def tone(self) -> str:
        """The colour that goes with the word."""
        return _TONES[self]


_TONES = {Health.HEALTHY: "ok", Health.LATE: "warn", Health.GONE: "bad", Health.STOPPED: "mute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One worker or beat. ``age``: seconds since its last heartbeat, by the database's clock."""

    kind: str
    name: str
    host: str
    pid: int
    version: str
    pool: str
    concurrency: int | None
    queues: tuple[str, ...]
    clock_offset: float | None
    clock_error: float | None
    started_at: datetime
    heartbeat_at: datetime
    health: Health
    age: float
    running: tuple[tuple[int, str], ...] = ()
    ran: int = 0
    prevented: int = 0
    failed: int = 0

    @property
    def age_words(self) -> str:
        """How long ago it was heard."""
        return duration_words(max(0.0, self.age))

    @property
    def offset_words(self) -> str:
        """``+2 ms ± 1 ms``: its clock less the database's."""
        if self.clock_offset is None:
            return "not known"
        error = "" if self.clock_error is None else f" ± {self.clock_error * 1000:.0f} ms"
        return f"{self.clock_offset * 1000:+.0f} ms{error}"

    @property
    def dimmed(self) -> bool:
        """Whether it is only remembered."""
        return self.health in (Health.GONE, Health.STOPPED)


def health(age: float, *, stopped: bool, alive: float, gone: float) -> Health:
    """Late once a process has been silent for ``alive`` seconds, gone after ``gone``."""
    if stopped:
        return Health.STOPPED
    if age <= alive:
        return Health.HEALTHY
    return Health.LATE if age <= gone else Health.GONE


def processes(*, alive: float, everyone: bool) -> tuple[list[Process], int]:
    """Those of the last fifteen minutes, or all, and how many are left out. Four queries."""
    forgotten = FORGOTTEN.total_seconds()
    with connection.cursor() as cursor:
        cursor.execute(_PROCESSES, {"all": everyone, "forgotten": forgotten, "most": MOST_PROCESSES})
        rows = cursor.fetchall()
        hidden = 0
        if not everyone:
            cursor.execute(_HIDDEN, {"forgotten": forgotten})
            hidden = cursor.fetchone()[0]
        cursor.execute(_LAST_HOUR)
        hour = {worker: counts for worker, *counts in cursor.fetchall()}
        cursor.execute(_RUNNING, {"most": MOST_RUNNING})
        inside: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for worker, _, number, schedule in cursor.fetchall():
            inside[worker].append((number, schedule))
    return [_process(row, hour, inside, alive) for row in rows], hidden


def _process(
    row: Sequence[Any], hour: dict[str, list[int]], inside: dict[str, list[tuple[int, str]]], alive: float
) -> Process:
    _, kind, name, host, pid, version, pool, concurrency, queues, offset, error, started, heard, stopped, age = row
    state = health(age, stopped=stopped is not None, alive=alive, gone=10 * alive)
    mine = kind == "worker" and state in (Health.HEALTHY, Health.LATE)  # a name is used again by the next process
    ran, prevented, failed = hour.get(name, (0, 0, 0)) if mine else (0, 0, 0)
    return Process(
        kind=kind, name=name, host=host, pid=pid, version=version, pool=pool, concurrency=concurrency,
        queues=_names(queues), clock_offset=offset, clock_error=error, started_at=started, heartbeat_at=heard,
        health=state, age=age, running=tuple(inside.get(name, ())) if mine else (), ran=ran, prevented=prevented,
        failed=failed,
    )  # fmt: skip


def _names(queues: Any) -> tuple[str, ...]:
    """A JSON column comes as text or as what it means, as the connection is set."""
    known = json.loads(queues) if isinstance(queues, str) else queues
    return tuple(str(name) for name in known) if isinstance(known, list) else ()
