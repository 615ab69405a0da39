"""Figures of a window: five minutes that are over are read as they were summed, the rest is counted.

``scheduler.dashboard.summing`` writes the sums. A window without any is counted whole, with the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection

from scheduler.audit import bodies_of
from scheduler.charts import Window
from scheduler.dashboard import rows, window_rows
from scheduler.dashboard.facts import TickRow
from scheduler.dashboard.figures import Cell, Collisions, Figures, Moment, Tally, Tallying, bin_start, cells
from scheduler.models import Execution

SLICE = 300
WORDS = (
    "executed", "prevented", "blocked", "revoked", "misfired", "failed", "abandoned", "lost", "overlap", "duplicate",
    "possible_overlap",
)  # fmt: skip
ENDED = WORDS[:8]
COLLIDED = ("overlap", "duplicate", "possible_overlap")
REFUSED = ("prevented", "duplicate")
# The columns of a stored tally, in order: the counter of ``Tally`` and the word in it.
COLUMNS = (
    *((word, "outcomes", word) for word in WORDS),
    *((f"ended_{word}", "ended", word) for word in ENDED),
    *((f"too_many_{word}", "too_many", word) for word in COLLIDED),
    *((f"hit_{word}", "hit", word) for word in COLLIDED),
    *((f"refused_{word}", "refusals", word) for word in REFUSED),
)

_SUMS = ", ".join(f"sum({column})" for column, _, _ in COLUMNS)
_WITHIN = (
    "slice_id >= %(start)s AND slice_id < %(end)s"
    " AND (%(schedule)s::bigint IS NULL OR schedule_id = %(schedule)s::bigint)"
)
# in:  start, end, schedule or null. out: the sums of each schedule and strategy, and its newest collision.
_BY_SCHEDULE = f"""
SELECT schedule_id, schedule, strategy, guarded, sum(missed), max(latest_start),
       (array_agg(latest_end ORDER BY latest_start DESC NULLS LAST))[1],
       (array_agg(latest_execution ORDER BY latest_start DESC NULLS LAST))[1], {_SUMS}
FROM aegis_scheduler_slicetally WHERE {_WITHIN} GROUP BY 1, 2, 3, 4
"""  # noqa: S608
# in:  as before, and step (s). out: ticks by outcome, bin and strategy.
_BY_BIN = f"""
SELECT date_bin(make_interval(secs => %(step)s), slice_id, 'epoch'::timestamptz), strategy, guarded,
       {", ".join(f"sum({word})" for word in WORDS)}
FROM aegis_scheduler_slicetally WHERE {_WITHIN} GROUP BY 1, 2, 3
"""  # noqa: S608
_SUMMED = "SELECT start FROM aegis_scheduler_summedslice WHERE start >= %(start)s AND start < %(end)s ORDER BY start"


def aligned(window: Window, step: int) -> Window:
    """The window from the start of five minutes on, where sums can serve its bins."""
    if step % SLICE:
        return window
    return Window(start=bin_start(window.start, SLICE), end=window.end)


def figures_in(window: Window, step: int, schedule_id: int | None = None) -> tuple[Figures, datetime | None]:
    """The figures, and from when on they are complete where the rest of the window holds too much to count."""
    with window_rows.uncompiled():
        return _figures_in(window, step, schedule_id)


def _figures_in(window: Window, step: int, schedule_id: int | None) -> tuple[Figures, datetime | None]:
    parts = parts_to_count(window, step)
    cut = window_rows.last_that_fits(parts, rows.MOST_TICKS, schedule_id)
    if cut is not None:
        parts, window = _from(parts, cut), Window(start=cut, end=window.end)
    near = window_rows.company(parts, rows.MOST_BODIES, schedule_id)
    if len(near) > rows.MOST_BODIES:
        cut = near[-2][1]
        parts, window = _from(parts, cut), Window(start=cut, end=window.end)
    tallying = Tallying()
    if cut is None and not step % SLICE:
        _add_sums(tallying, window, step, schedule_id)
    tallying.add_cells(counted(parts, step, [pk for pk, _ in near[: rows.MOST_BODIES]], schedule_id))
    return tallying.figures(), cut


def _from(parts: Sequence[Window], start: datetime) -> list[Window]:
    return [Window(start=max(part.start, start), end=part.end) for part in parts if part.end > start]


def parts_to_count(window: Window, step: int) -> list[Window]:
    """The stretches of the window that were not summed, or all of it where its bins are finer than the sums."""
    if step % SLICE:
        return [window]
    with connection.cursor() as cursor:
        cursor.execute(_SUMMED, {"start": window.start, "end": _last_whole(window)})
        summed = [start for (start,) in cursor.fetchall()]
    parts, at = [], window.start
    for start in summed:
        if start > at:
            parts.append(Window(start=at, end=start))
        at = start + timedelta(seconds=SLICE)
    return [*parts, Window(start=at, end=window.end)] if at < window.end else parts


def _last_whole(window: Window) -> datetime:
    """A slice that reaches beyond a frozen "now" is not for the sums."""
    return window.end - timedelta(seconds=SLICE) + timedelta(microseconds=1)


def counted(
    parts: Sequence[Window], step: int, company: Sequence[int], schedule_id: int | None = None
) -> dict[Cell, Tally]:
    """Count the ticks of the parts; ``company`` are the bodies that may have collided."""
    bodies = bodies_of(Execution.objects.filter(pk__in=company)) if company else []
    collisions = Collisions.among(bodies, rows.unlocked_aliases())
    groups = window_rows.groups_of_ticks(parts, step, schedule_id)
    hit = [tick for tick in _hit(collisions.ticks, schedule_id) if any(_inside(tick, part) for part in parts)]
    refused = window_rows.refused_of(parts, step, schedule_id)
    return cells([*_less(groups, hit, step), *hit], collisions, refused, step=step)


def _hit(ids: set[int], schedule_id: int | None) -> list[TickRow]:
    found = window_rows.ticks_by_id(ids) if ids else []
    return [tick for tick in found if schedule_id is None or tick.schedule_id == schedule_id]


def _inside(tick: TickRow, part: Window) -> bool:
    return part.start <= tick.fire_time < part.end


def _less(groups: list[TickRow], hit: list[TickRow], step: int) -> list[TickRow]:
    """The groups without the ticks that are counted one by one."""
    taken: Counter[tuple[object, ...]] = Counter()
    missed: Counter[tuple[object, ...]] = Counter()
    for tick in hit:
        taken[_group(tick, step)] += 1
        missed[_group(tick, step)] += max(1, tick.missed)
    left = ((tick, _group(tick, step)) for tick in groups)
    return [
        tick._replace(number=tick.number - taken[group], missed=tick.missed - missed[group])
        for tick, group in left
        if tick.number > taken[group]
    ]


def _group(tick: TickRow, step: int) -> tuple[object, ...]:
    start = bin_start(tick.fire_time, step)
    return start, tick.key, tick.task, tick.state, tick.outcome, tick.strategy, tick.guarded


def _add_sums(tallying: Tallying, window: Window, step: int, schedule_id: int | None) -> None:
    given = {"start": window.start, "end": _last_whole(window), "schedule": schedule_id, "step": step}
    with connection.cursor() as cursor:
        cursor.execute(_BY_SCHEDULE, given)
        for pk, name, strategy, guarded, missed, start, end, execution, *sums in cursor.fetchall():
            tally = Tally(missed=missed)
            for (_, counter, word), number in zip(COLUMNS, sums, strict=True):
                if number:
                    getattr(tally, counter)[word] = number
            if start is not None:
                tally.latest = Moment(start=start, end=end, execution_id=execution)
            tallying.add_sum((pk or None, name), strategy, guarded, tally)
        cursor.execute(_BY_BIN, given)
        for start, strategy, guarded, *sums in cursor.fetchall():
            found = Counter({word: number for word, number in zip(WORDS, sums, strict=True) if number})
            tallying.add_bin(start, strategy, guarded, found)
