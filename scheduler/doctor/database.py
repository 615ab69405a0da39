"""The database of Aegis itself: does it answer, is it migrated, what time is it there, are there connections left?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connection as django_connection
from django.db.migrations.executor import MigrationExecutor

from locks import Finding
from locks.connection import execute
from locks.findings import fail, ok, warn
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.fleet import Fleet, Seen
from scheduler.doctor.leases import Strategy

TOPIC = "postgres"
PATIENCE = 2.5  # seconds for one answer
CLOCK = 1.0  # seconds between two clocks before it is said
KEPT = 90.0  # days of ticks in a ledger of which nothing is ever deleted, before it is said

_ROOM = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""
_AGE = "SELECT extract(epoch FROM clock_timestamp() - min(fire_time))::float8 / 86400 FROM aegis_scheduler_tick"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """This process's clock less the database's, seconds, right to ``error``."""

    offset: float
    error: float


def reach() -> Clock | str:
    """The database's clock, or why it did not answer. Raises nothing of psycopg."""
    try:
        execute(_CLOCK, timeout=PATIENCE)  # to be connected: only the exchange is measured
        before = time.time()
        ((now,),) = execute(_CLOCK, timeout=PATIENCE)
        after = time.time()
    except (psycopg.Error, ImproperlyConfigured) as trouble:
        return type(trouble).__name__
    return Clock(offset=(before + after) / 2 - now, error=(after - before) / 2)


def judge_reach(answer: Clock | str) -> Finding:
    if isinstance(answer, str):
        return fail(
            TOPIC, f"the database of Aegis does not answer ({answer}): nothing is stored and nothing runs",
            "Start PostgreSQL, or correct DATABASES['default'].",
        )  # fmt: skip
    said = f"this process's clock is {answer.offset:+.3f} s off the database's (to {answer.error:.3f} s)"
    if abs(answer.offset) - answer.error > CLOCK:
        return warn(TOPIC, said, "Let both machines follow one time service.")
    return ok(TOPIC, said)


def migrations() -> Iterator[Finding]:
    """Whether the tables are those that this code expects. Asks."""
    executor = MigrationExecutor(django_connection)
    missing = [f"{m.app_label}.{m.name}" for m, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    ours = [name for name in missing if name.startswith("aegis_")]
    if ours:
        yield fail(TOPIC, f"{len(ours)} migrations are not applied, from {ours[0]} on", "Run manage.py migrate.")
    else:
        yield ok(TOPIC, "all migrations of Aegis are applied")


def room() -> tuple[int, int]:
    """How many connections there may be for ordinary roles, and how many there are. Asks."""
    ((most, used),) = execute(_ROOM, timeout=PATIENCE)
    return most, used


def age() -> float | None:
    """Days since the oldest fire time of the ledger; ``None`` where it is empty. Asks."""
    ((days,),) = execute(_AGE, timeout=PATIENCE)
    return None if days is None else float(days)


def judge_age(days: float | None, kept: int | None) -> Iterator[Finding]:
    if days is not None and days > KEPT and kept is None:
        yield warn(
            TOPIC, f"the ledger holds ticks of {days:.0f} days, of which nothing is ever deleted: it grows for ever",
            "Set AEGIS['KEEP_DAYS'], or run aegis prune by cron.",
        )  # fmt: skip


def judge_room(
    most: int, used: int, fleet: Fleet, scheduled: Sequence[Scheduled], strategies: Mapping[str, Strategy]
) -> Finding:
    """Against what the live processes may take when each of their bodies is inside."""
    in_force = {strategies[row.alias] for row in scheduled if row.alias in strategies}
    session = int(any(one.session_bound for one in in_force))
    renewing = len([one for one in in_force if one.in_database and one.renewable and not one.session_bound])
    need = sum(_need(worker, session, renewing) for worker in fleet.workers) + 2 * len(fleet.beats)
    said = (
        f"max_connections leaves {most}, {used} are in use; {len(fleet.workers)} workers and {len(fleet.beats)} "
        f"beats may take {need} when every body is inside"
    )
    if need > most:
        return warn(
            TOPIC, f"{said}: then nobody can start or finish a run",
            "Raise max_connections, or start fewer processes; see how-to/run-the-doctor.",
        )  # fmt: skip
    return ok(TOPIC, said)


def _need(worker: Seen, session: int, renewing: int) -> int:
    """Each body: Aegis's own and Django's connection, and the lease's where that is a session. Each process that
    runs bodies: one for heartbeats and one a strategy that renews. Each worker: one to show that it is alive."""
    bodies = worker.concurrency or 1
    processes = bodies if worker.pool in ("prefork", "") else 1
    return bodies * (2 + session) + processes * (1 + renewing) + 1
