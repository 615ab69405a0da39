"""Rows of a window, counted by the database as far as that can be; only bodies that may have collided are read.

A window is given as parts, [start, end) each, of fire times. Ticks come as groups of like ones. Of the bodies, those
that were alone under their lock name, and the only ones of their tick, cannot have collided and stay where they are:
the filter looks at intervals that are never shorter than those of ``scheduler.bodies``, so it can only let too many
through. What a collision is, is decided by ``scheduler.collisions`` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from scheduler.charts import Window
from scheduler.dashboard.facts import RefusedRow, TickRow
from scheduler.models import Tick

Parts = Sequence[Window]

# OFFSET 0 keeps the planner from joining whole tables: each part is a range of an index, each tick a probe of one.
_PARTS = "unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) WITH ORDINALITY AS part (a, z, n)"
_BIN = "date_bin(make_interval(secs => %(step)s), t.fire_time, 'epoch'::timestamptz)"
_TICKS_OF = f"""
{_PARTS} CROSS JOIN LATERAL (
    SELECT * FROM aegis_scheduler_tick t WHERE t.fire_time >= part.a AND t.fire_time < part.z
     AND (%(schedule)s::bigint IS NULL OR t.schedule_id = %(schedule)s::bigint) OFFSET 0
) t"""  # noqa: S608
_TRIES_OF = "CROSS JOIN LATERAL (SELECT * FROM aegis_scheduler_execution e WHERE e.tick_id = t.id OFFSET 0) e"

# in:  parts, step (s), schedule or null. out: a group of like ticks, its number, and the fire times it missed.
_TICKS = f"""
SELECT {_BIN}, t.schedule_id, t.schedule_name, t.task, t.state, t.outcome, t.lock_alias, t.once_per_tick,
       count(*), coalesce(sum(greatest(1, t.missed_count)) FILTER (WHERE t.outcome = 'misfired'), 0)
FROM {_TICKS_OF}
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
"""  # noqa: S608
# out: tries that a lock or the tick guard refused, in groups.
_REFUSED = f"""
SELECT t.schedule_id, t.schedule_name, t.task, e.state, count(*), {_BIN}, t.lock_alias, t.once_per_tick
FROM {_TICKS_OF} {_TRIES_OF}
WHERE e.state IN ('prevented', 'duplicate')
GROUP BY 1, 2, 3, 4, 6, 7, 8
"""  # noqa: S608
# Of a body: when it started, and the last that it may have been inside.
_STAY = """e.id, e.started_at AS s,
               CASE WHEN e.state = 'running' THEN 'infinity'::timestamptz
                    ELSE greatest(e.started_at, e.ended_at, e.heartbeat_at, e.returned_at) END AS f
        FROM aegis_scheduler_execution e WHERE e.lock_name = span.lock_name AND e.began"""


def _company(mine: str, recent: str) -> str:
    """SQL for the bodies that may have collided, as id and start, the newest ``most`` first.

    ``mine`` are the bodies asked about, in stretches ``n``; ``near`` those under their names that may be inside
    with them: the ``recent`` ones, and those inside for more than an hour, which have an index of their own;
    ``swept`` goes through them in the order of starting: one that starts before all earlier ones have ended has
    company, and so have those before it.
    """
    return f"""
WITH mine AS MATERIALIZED (
    {mine}
), span AS MATERIALIZED (
    SELECT n, lock_name, min(started_at) AS a, max(started_at) AS z FROM mine GROUP BY n, lock_name
), near AS (
    SELECT span.n, span.lock_name, e.* FROM span CROSS JOIN LATERAL ({recent}) e WHERE e.f >= span.a
    UNION ALL
    SELECT span.n, span.lock_name, e.id, e.started_at, 'infinity'::timestamptz
    FROM span JOIN aegis_scheduler_execution e ON e.lock_name = span.lock_name AND e.state = 'running'
     AND e.started_at < span.a - interval '1 hour'
    UNION ALL
    SELECT span.n, span.lock_name, e.id, e.started_at, greatest(e.ended_at, e.heartbeat_at, e.returned_at)
    FROM span JOIN aegis_scheduler_execution e ON e.lock_name = span.lock_name AND e.state <> 'running' AND e.began
     AND e.started_at < span.a - interval '1 hour'
     AND greatest(e.ended_at, e.heartbeat_at, e.returned_at) - e.started_at > interval '1 hour'
     AND greatest(e.ended_at, e.heartbeat_at, e.returned_at) >= span.a
), swept AS (
    SELECT id, s, f, max(f) OVER earlier AS before, lead(s) OVER in_order AS next
    FROM near
    WINDOW in_order AS (PARTITION BY n, lock_name ORDER BY s, id),
           earlier AS (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT id, s FROM (
    SELECT id, s FROM swept WHERE before > s OR next < greatest(f, before)
    UNION
    SELECT id, started_at FROM mine
    WHERE tick_id IN (SELECT tick_id FROM mine GROUP BY tick_id HAVING count(*) > 1)
) company ORDER BY s DESC, id DESC LIMIT %(most)s
"""  # noqa: S608


# in:  parts, schedule or null, most.
_COMPANY = _company(
    f"SELECT part.n, e.id, e.tick_id, e.lock_name, e.started_at FROM {_TICKS_OF} {_TRIES_OF} WHERE e.began",  # noqa: S608
    f"SELECT {_STAY} AND e.started_at <= span.z AND e.started_at >= span.a - interval '1 hour' OFFSET 0",
)
# in:  ticks, before, most. Those of one name with less than a minute between them are one stretch, so that a schedule
#      that is seldom due is not read together with all that ran under its name in the meantime.
_COMPANY_OF_TICKS = _company(
    f"""SELECT count(*) FILTER (WHERE apart) OVER (PARTITION BY lock_name ORDER BY started_at, id) AS n,
           id, tick_id, lock_name, started_at
    FROM (SELECT e.id, e.tick_id, e.lock_name, e.started_at,
                 e.started_at - lag(e.started_at) OVER (PARTITION BY e.lock_name ORDER BY e.started_at, e.id)
                 > interval '1 minute' AS apart
          FROM unnest(%(ticks)s::bigint[]) t (id) {_TRIES_OF} WHERE e.began) tries""",  # noqa: S608
    f"""SELECT {_STAY} AND e.started_at BETWEEN span.a AND span.z
    UNION ALL (
        SELECT {_STAY} AND e.started_at < span.a AND e.started_at >= span.a - interval '1 hour'
        ORDER BY e.started_at DESC LIMIT %(before)s)""",
)
# Bodies looked at before each stretch for one that is inside yet.
BEFORE = 100
# in:  parts, schedule or null, most. out: the fire times of the last tick that fits, and of the next one.
_LAST_THAT_FITS = f"""
SELECT t.fire_time FROM {_TICKS_OF}
ORDER BY t.fire_time DESC OFFSET %(most)s - 1 LIMIT 2
"""  # noqa: S608


@contextmanager
def uncompiled() -> Iterator[None]:
    """A transaction without JIT: it takes longer to compile these statements than to run them."""
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL jit = off")
        yield


def _given(parts: Parts, schedule_id: int | None, **more: Any) -> dict[str, Any]:
    starts, ends = [part.start for part in parts], [part.end for part in parts]
    return {"starts": starts, "ends": ends, "schedule": schedule_id, **more}


def _rows(sql: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, given)
        return cursor.fetchall()


def groups_of_ticks(parts: Parts, step: int, schedule_id: int | None = None) -> list[TickRow]:
    """The ticks of the parts in groups of like ones; each has the start of its bin for a fire time, and no id."""
    rows = _rows(_TICKS, _given(parts, schedule_id, step=step)) if parts else []
    return [
        TickRow(0, pk, name, task, start, state, outcome, "", alias, guarded, missed, number)
        for start, pk, name, task, state, outcome, alias, guarded, number, missed in rows
    ]


def refused_of(parts: Parts, step: int, schedule_id: int | None = None) -> list[RefusedRow]:
    """Tries that were refused, by schedule, bin and strategy."""
    return [RefusedRow(*row) for row in _rows(_REFUSED, _given(parts, schedule_id, step=step))] if parts else []


def company(parts: Parts, most: int, schedule_id: int | None = None) -> list[tuple[int, datetime]]:
    """Bodies that may have collided, as id and start, the newest first; one more than ``most`` says: more."""
    return [(pk, at) for pk, at in _rows(_COMPANY, _given(parts, schedule_id, most=most + 1))] if parts else []


def company_of_ticks(ticks: Collection[int], most: int) -> list[int]:
    """The newest ``most`` bodies that may have collided among those of these ticks and those beside them."""
    given = {"ticks": list(ticks), "before": BEFORE, "most": most}
    return [pk for pk, _ in _rows(_COMPANY_OF_TICKS, given)] if ticks else []


def last_that_fits(parts: Parts, most: int, schedule_id: int | None = None) -> datetime | None:
    """The fire time of the last of the newest ``most`` ticks, where there are more than that."""
    rows = _rows(_LAST_THAT_FITS, _given(parts, schedule_id, most=most)) if parts else []
    return rows[0][0] if len(rows) > 1 else None


def ticks_by_id(ids: Collection[int]) -> list[TickRow]:
    """These ticks, one by one."""
    rows = Tick.objects.filter(pk__in=ids).values_list(
        "id", "schedule_id", "schedule_name", "task", "fire_time", "state", "outcome", "lock_name", "lock_alias",
        "once_per_tick", "missed_count",
    )  # fmt: skip
    return [TickRow(*row) for row in rows.order_by()]
