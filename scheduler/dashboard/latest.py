"""The latest ticks of schedules and how long they ran: one query for any number of schedules, a few ticks of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.db import connection

SHOWN = 60  # ticks of each schedule

# in:  ids, shown.
_LATEST = """
FROM unnest(%(ids)s::bigint[]) s(id)
CROSS JOIN LATERAL (
    SELECT id, fire_time, state, outcome, lock_alias, ttl FROM aegis_scheduler_tick
    WHERE schedule_id = s.id AND manual_key IS NULL ORDER BY fire_time DESC LIMIT %(shown)s
) t
"""
# out: schedule, tick, fire time, state, outcome, strategy, ttl, longest run (s), workers, token, rivals, first start.
_TICKS = f"""
SELECT s.id, t.id, t.fire_time, t.state, t.outcome, t.lock_alias, t.ttl, e.ran, e.workers, e.token, e.rivals, e.began
{_LATEST}
LEFT JOIN LATERAL (
    SELECT max(ran) AS ran, array_agg(DISTINCT worker) FILTER (WHERE started_at IS NOT NULL) AS workers,
           max(token) AS token, count(*) FILTER (WHERE started_at IS NULL) AS rivals, min(started_at) AS began
    FROM aegis_scheduler_execution WHERE tick_id = t.id
) e ON true
ORDER BY s.id, t.fire_time DESC
"""  # noqa: S608
# out: schedule, and the longest run of each of its ticks (s).
_RUNS = f"""
SELECT s.id, (SELECT max(ran) FROM aegis_scheduler_execution WHERE tick_id = t.id) {_LATEST}
"""  # noqa: S608


def ticks_of(ids: Iterable[int]) -> list[tuple[Any, ...]]:
    """The latest fire times of each schedule, the newest first, with what came of them."""
    return _rows(_TICKS, ids)


def p95_of(ids: Collection[int]) -> dict[int, float | None]:
    """The 95th percentile of the latest runs of each schedule, seconds."""
    runs: dict[int, list[float | None]] = {pk: [] for pk in ids}
    for pk, ran in _rows(_RUNS, ids) if ids else ():
        runs[pk].append(ran)
    return {pk: percentile(ran, 0.95) for pk, ran in runs.items()}


def percentile(runs: Iterable[float | None], share: float) -> float | None:
    """Of runs (seconds; None: it was not run); None where there are fewer than five."""
    ran = sorted(seconds for seconds in runs if seconds is not None)
    return ran[min(len(ran) - 1, int(share * len(ran)))] if len(ran) >= 5 else None


def _rows(sql: str, ids: Iterable[int]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"ids": list(ids), "shown": SHOWN})
        return cursor.fetchall()
