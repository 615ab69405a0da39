"""Rows for the pages: read-only queries, each within a window and a limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Max, Q

from locks import lock_backends
from scheduler.audit import bodies_of
from scheduler.charts import Marker, Window
from scheduler.collisions import Body
from scheduler.dashboard.facts import TryRow
from scheduler.held import excludes
from scheduler.models import Execution, ScheduleChange, Tick
from scheduler.states import ExecutionState

# Ticks of a window that are counted from their rows, and bodies that are read one by one.
MOST_TICKS = 100_000
MOST_BODIES = 10_000
MOST_MARKERS = 50
# Bodies that began longer before the window than this are looked for by the index of those that took that long.
LOOKBACK = timedelta(hours=1)
# in: the start of the window. out: bodies that began earlier than that and were inside then.
_LONG = """
SELECT id FROM aegis_scheduler_execution
WHERE greatest(ended_at, heartbeat_at, returned_at) - started_at > interval '1 hour'
  AND started_at < %(start)s AND greatest(ended_at, heartbeat_at, returned_at) >= %(start)s LIMIT 1000
"""


def latest_tick(schedule_id: int | None = None, before: datetime | None = None) -> datetime | None:
    """The newest fire time of all, if there is one."""
    ticks = Tick.objects.all() if schedule_id is None else Tick.objects.filter(schedule_id=schedule_id)
    if before is not None:
        ticks = ticks.filter(fire_time__lt=before)
    latest: datetime | None = ticks.aggregate(latest=Max("fire_time"))["latest"]
    return latest


def touching(window: Window) -> Q:
    """Executions that began and were inside at some time of the window, or may be yet."""
    recent = Q(recorded_at__gte=window.start - LOOKBACK) | Q(state=ExecutionState.RUNNING)
    with connection.cursor() as cursor:  # asked first: as a part of the condition it would be asked of every row
        cursor.execute(_LONG, {"start": window.start})
        if long := [pk for (pk,) in cursor.fetchall()]:
            recent |= Q(pk__in=long)
    not_over = Q(ended_at__isnull=True) | Q(ended_at__gte=window.start) | Q(returned_at__gte=window.start)
    return Q(started_at__isnull=False, recorded_at__lt=window.end) & recent & not_over


def bodies_in(
    window: Window, lock_names: Collection[str] | None = None, most: int | None = None
) -> tuple[list[Body], datetime | None]:
    """The newest bodies of the window; where older ones were left out, also from when on all are there."""
    rows = Execution.objects.filter(touching(window), began=True)
    if lock_names is not None:
        rows = rows.filter(lock_name__in=lock_names)
    most = MOST_BODIES if most is None else most
    newest = rows.order_by("-recorded_at", "-id").values("pk")[: most + 1]
    bodies = bodies_of(Execution.objects.filter(pk__in=newest))
    if len(bodies) <= most:
        return bodies, None
    return bodies[1:], bodies[1].started_at


def bodies_beside(row: TryRow, now: datetime) -> list[Body]:
    """The body of this try with those inside beside it under its lock name and the others of its tick."""
    stay = Window(start=row.at, end=(row.until or now) + timedelta(microseconds=1))
    near, _ = bodies_in(stay, {row.lock_name})
    tick = bodies_of(Execution.objects.filter(tick_id=row.tick_id))
    return [*{body.execution_id: body for body in (*near, *tick)}.values()]


def markers_in(window: Window, schedule_id: int | None = None) -> list[Marker]:
    """Changes of strategy, with who made them."""
    changes = ScheduleChange.objects.filter(
        changed_at__gte=window.start, changed_at__lt=window.end, after__has_key="strategy"
    )
    if schedule_id is not None:
        changes = changes.filter(schedule_id=schedule_id)
    who = f"changed_by__{get_user_model().USERNAME_FIELD}"
    rows = changes.order_by("-changed_at").values_list("changed_at", "schedule_name", "before", "after", who)
    return [_marker(*row) for row in rows[:MOST_MARKERS] if row[2].get("strategy")]  # else: newly made


def _marker(at: datetime, schedule: str, before: dict[str, Any], after: dict[str, Any], who: Any) -> Marker:
    change = f"{before['strategy']} → {after['strategy']}"
    return Marker(at=at, label=f"{schedule}: strategy {change}" + (f" ({who})" if who else ""))


def unlocked_aliases() -> Sequence[str]:
    """The strategies that exclude nothing, so that a collision under one has that for its cause."""
    return [alias for alias in lock_backends.aliases() if not excludes(alias)]
