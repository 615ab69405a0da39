"""Sum up what is over, five minutes at a time, so that a page of a day need not count a day's rows.

A beat does it beside its passes, one beat at a time. A slice is summed once all of its ticks are over and all of
their bodies have ended, by the same code that counts the rest of a window. What is heard of it later (a copy of a
message that runs again without the tick guard, a worker that comes back from the dead, a fire time that is named
late) makes it stale: it is deleted, counted from its rows again, and summed anew.

Told as a timeline: the slice 12:00 is summed at 12:06; at 12:30 a frozen worker wakes up and its return is recorded;
the next round finds a return that is younger than the sum and deletes the slice; from then on the overview counts its
rows, until a round has summed it with the overlap in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import connection, transaction

from scheduler.charts import Window
from scheduler.dashboard import window_rows
from scheduler.dashboard.figures import Cell, Tally
from scheduler.dashboard.summary import COLUMNS, SLICE, counted
from scheduler.models import SliceTally, SummedSlice
from scheduler.pruning import kept_days

# Days of which slices are summed: a day more than the longest window of a page.
DAYS = 8
# Slices of one round.
MOST_SLICES = 4
# Bodies of a round that may have collided; more make the round smaller.
MOST_COMPANY = 20_000
# Milliseconds that one statement of a round may take.
PATIENCE = 5_000

_ALONE = "SELECT pg_try_advisory_xact_lock(hashtext('aegis summing'))"
_SLICE = "date_bin(interval '5 minutes', t.fire_time, 'epoch'::timestamptz)"
# out: slices of which something is younger than their sum, of what was written in the last minutes or since the last
#      round. Fifteen seconds are for writers whose transaction ended after their stamp.
_STALE = f"""
WITH since AS (
    SELECT least(clock_timestamp() - interval '10 minutes', max(summed_at) - interval '1 minute') AS at
    FROM aegis_scheduler_summedslice
), young AS (
    SELECT e.tick_id AS id, e.recorded_at AS at FROM aegis_scheduler_execution e, since
    WHERE e.recorded_at >= since.at
    UNION ALL
    SELECT e.tick_id, e.returned_at FROM aegis_scheduler_execution e, since
    WHERE e.state = 'abandoned' AND e.returned_at >= since.at
    UNION ALL
    SELECT t.id, t.planned_at FROM aegis_scheduler_tick t, since
    WHERE t.id > (SELECT max(id) - 20000 FROM aegis_scheduler_tick) AND t.planned_at >= since.at
), touched AS MATERIALIZED (
    SELECT {_SLICE} AS start, max(young.at) AS at FROM young CROSS JOIN LATERAL (
        SELECT fire_time FROM aegis_scheduler_tick WHERE id = young.id OFFSET 0
    ) t GROUP BY 1
)
SELECT s.start FROM touched JOIN aegis_scheduler_summedslice s ON s.start = touched.start
WHERE touched.at > s.summed_at - interval '15 seconds'
"""  # noqa: S608
# in:  most, days. out: the newest slices that are over and not summed, of the last days.
_DUE = f"""
WITH busy AS (
    SELECT {_SLICE} AS start FROM aegis_scheduler_tick t
    WHERE t.state IN ('planned', 'dispatched', 'waiting', 'started')
    UNION SELECT {_SLICE} FROM aegis_scheduler_execution e JOIN aegis_scheduler_tick t ON t.id = e.tick_id
    WHERE e.state = 'running'
), first AS (
    SELECT greatest(min(t.fire_time), clock_timestamp() - make_interval(days => %(days)s)) AS at
    FROM aegis_scheduler_tick t
)
SELECT start FROM first, generate_series(
    date_bin(interval '5 minutes', first.at, 'epoch'::timestamptz),
    clock_timestamp() - interval '330 seconds', interval '5 minutes'
) start
WHERE start NOT IN (SELECT start FROM busy)
  AND NOT EXISTS (SELECT FROM aegis_scheduler_summedslice s WHERE s.start = start.start)
ORDER BY start DESC LIMIT %(most)s
"""  # noqa: S608


def sum_up(most: int = MOST_SLICES) -> int:
    """One round: forget stale sums, then sum up to ``most`` slices; returns how many. Raises database errors.

    In one transaction; where another process is at it, nothing is done.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {PATIENCE}")
        cursor.execute("SET LOCAL jit = off")
        cursor.execute(_ALONE)
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(_STALE)
        SummedSlice.objects.filter(start__in=[start for (start,) in cursor.fetchall()]).delete()
        # What beats delete again a minute later is not summed anew.
        cursor.execute(_DUE, {"most": most, "days": min(DAYS, kept_days() or DAYS)})
        return _sum([start for (start,) in cursor.fetchall()])


def _sum(starts: list[datetime]) -> int:
    if not starts:
        return 0
    length = timedelta(seconds=SLICE)
    parts = [Window(start=start, end=start + length) for start in starts]
    limit = MOST_COMPANY if len(parts) > 1 else 1_000_000
    near = window_rows.company(parts, limit)
    if len(near) > limit:
        return _sum(starts[: len(starts) // 2])
    _store(starts, counted(parts, SLICE, [pk for pk, _ in near]))
    return len(starts)


def _store(starts: list[datetime], found: Mapping[Cell, Tally]) -> None:
    SummedSlice.objects.bulk_create(SummedSlice(start=start) for start in starts)
    SliceTally.objects.bulk_create(_row(cell, tally) for cell, tally in found.items())


def _row(cell: Cell, tally: Tally) -> SliceTally:
    pk, name = cell.key
    newest = tally.latest
    return SliceTally(
        slice_id=cell.start,
        schedule_id=pk or 0,
        schedule=name,
        strategy=cell.strategy,
        guarded=cell.guarded,
        missed=tally.missed,
        latest_start=newest.start if newest else None,
        latest_end=newest.end if newest else None,
        latest_execution=newest.execution_id if newest else None,
        **{column: getattr(tally, counter)[word] for column, counter, word in COLUMNS},
    )
