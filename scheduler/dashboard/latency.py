"""How long acquiring and running took under each strategy, and how long names stayed closed after a death."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from scheduler.charts import Window

# Executions of each strategy, or ticks of one schedule, the newest of the window, that percentiles are made of.
SAMPLE = 1_000
DEATHS = 100

# out, by alias: runs, and the median and 95th percentile of acquiring (ms) and of running (s).
_PERCENTILES = """
SELECT alias, count(newest.ran), percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY newest.acquire_ms),
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY newest.ran)
"""
# in:  aliases, start, end, sample.
_TIMES = f"""{_PERCENTILES}
FROM unnest(%(aliases)s::text[]) alias
CROSS JOIN LATERAL (
    SELECT e.acquire_ms, e.ran FROM aegis_scheduler_execution e
    WHERE e.lock_alias = alias AND e.recorded_at >= %(start)s AND e.recorded_at < %(end)s
    ORDER BY e.recorded_at DESC LIMIT %(sample)s
) newest
GROUP BY alias
"""  # noqa: S608
# in:  schedule, start, end, sample: its ticks.
_TIMES_OF_SCHEDULE = f"""{_PERCENTILES}
FROM (
    SELECT id FROM aegis_scheduler_tick
    WHERE schedule_id = %(schedule)s AND fire_time >= %(start)s AND fire_time < %(end)s
    ORDER BY fire_time DESC LIMIT %(sample)s
) t
CROSS JOIN LATERAL (
    SELECT e.lock_alias AS alias, e.acquire_ms, e.ran FROM aegis_scheduler_execution e WHERE e.tick_id = t.id
) newest
GROUP BY alias
"""  # noqa: S608
# in:  start, end, deaths, schedule or null. out, by alias: deaths that were followed by another start, and how long
#      after the last heartbeat it came: median and longest (s).
_TAKEOVERS = """
SELECT died.lock_alias, count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY waited), max(waited)
FROM (SELECT e.lock_alias, e.lock_name, e.heartbeat_at FROM aegis_scheduler_execution e
      JOIN aegis_scheduler_tick t ON t.id = e.tick_id
      WHERE e.state = 'abandoned' AND e.began AND e.recorded_at >= %(start)s AND e.recorded_at < %(end)s
        AND (%(schedule)s::bigint IS NULL OR t.schedule_id = %(schedule)s::bigint)
      ORDER BY e.recorded_at DESC LIMIT %(deaths)s) died
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM e.started_at - died.heartbeat_at)::float8 AS waited
    FROM aegis_scheduler_execution e
    WHERE e.lock_name = died.lock_name AND e.began AND e.started_at > died.heartbeat_at
    ORDER BY e.started_at LIMIT 1
) following
GROUP BY died.lock_alias
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """``number`` runs; pairs are the 50th and 95th percentile: acquiring in milliseconds, running in seconds."""

    number: int
    acquire: tuple[float, float] | None
    ran: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """After ``deaths``, seconds from the last heartbeat to the next start under the name."""

    deaths: int
    median: float
    longest: float


def times(window: Window, aliases: Sequence[str], schedule_id: int | None = None) -> dict[str, Times]:
    """By strategy; those without an execution are not in it. One query, a bounded sample of each."""
    within: dict[str, Any] = {"start": window.start, "end": window.end, "sample": SAMPLE}
    with connection.cursor() as cursor:
        if schedule_id is None:
            cursor.execute(_TIMES, {"aliases": list(aliases), **within})
        else:
            cursor.execute(_TIMES_OF_SCHEDULE, {"schedule": schedule_id, **within})
        return {
            alias: Times(number=number, acquire=_pair(acquire), ran=_pair(ran))
            for alias, number, acquire, ran in cursor.fetchall()
        }


def _pair(values: Sequence[float | None] | None) -> tuple[float, float] | None:
    if not values or values[0] is None or values[1] is None:
        return None
    return values[0], values[1]


def takeovers(window: Window, schedule_id: int | None = None) -> dict[str, Takeover]:
    """By strategy, of the newest deaths in the window. The wait for the next fire time is part of it. One query."""
    within: dict[str, Any] = {
        "start": window.start, "end": window.end, "deaths": DEATHS, "schedule": schedule_id,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_TAKEOVERS, within)
        return {
            alias: Takeover(deaths=deaths, median=median, longest=longest)
            for alias, deaths, median, longest in cursor.fetchall()
        }
