"""Tries and workers of a window: the timeline's read-only queries, each within a limit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, F, Q, QuerySet, When

from scheduler.charts import Window
from scheduler.dashboard.facts import TryRow
from scheduler.dashboard.rows import touching
from scheduler.models import Execution, Instance, Tick

MOST_TRIES = 5_000
MOST_WORKERS = 200
# So many tries are drawn one by one.
FEW = 400
_LONGEST = timedelta(days=7)
# When the wait of a try began. A run by hand may be for a fire time of long ago (``scheduler.again``).
DUE = Case(When(tick__manual_key=None, then=F("tick__fire_time")), default=F("tick__planned_at"))
_FIELDS: tuple[Any, ...] = (
    "id", "tick_id", "tick__schedule_id", "tick__schedule_name", "tick__task", "tick__fire_time", "attempt",
    "state", "reason", "worker", "pid", "token", "lock_name", "lock_alias", "guarded", "recorded_at",
    "started_at", "heartbeat_at", "ended_at", "returned_at", "ran", "holder_id", DUE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which tries: of one schedule, under one strategy, that ended in one way, or all."""

    schedule_id: int | None = None
    strategy: str = ""
    state: str = ""

    def among(self, tries: QuerySet[Execution]) -> QuerySet[Execution]:
        """Those of them."""
        if self.schedule_id is not None:
            tries = tries.filter(tick__schedule_id=self.schedule_id)
        given = {"lock_alias": self.strategy, "state": self.state}
        return tries.filter(**{field: value for field, value in given.items() if value})


def tries_in(window: Window, wanted: Wanted) -> tuple[list[TryRow], bool]:
    """The newest tries of the window, newest first, and whether older ones were left out."""
    refused = Q(started_at__isnull=True, recorded_at__gte=window.start, recorded_at__lt=window.end)
    rows = wanted.among(Execution.objects.filter(refused | touching(window)))
    found = [TryRow(*row) for row in rows.order_by("-recorded_at", "-id").values_list(*_FIELDS)[: MOST_TRIES + 1]]
    return found[:MOST_TRIES], len(found) > MOST_TRIES


def tries_of(ids: Collection[int]) -> dict[int, TryRow]:
    """These tries by id, as far as they exist."""
    rows = Execution.objects.filter(pk__in=ids).order_by().values_list(*_FIELDS)
    return {row[0]: TryRow(*row) for row in rows}


def newest_stamps(wanted: Wanted, before: datetime) -> list[datetime]:
    """When the newest few tries of the last days were recorded, newest first."""
    tries = Execution.objects.filter(recorded_at__gte=before - _LONGEST, recorded_at__lt=before)
    if wanted.schedule_id is not None:  # by its newest ticks: the index of stamps knows no schedules
        ticks = Tick.objects.filter(schedule_id=wanted.schedule_id, fire_time__lt=before)
        tries = tries.filter(tick__in=ticks.order_by("-fire_time").values("pk")[:FEW])
    rows = wanted.among(tries).order_by("-recorded_at").values_list("recorded_at", flat=True)
    return list(rows[:FEW])


def workers_in(window: Window) -> list[str]:
    """The names of the workers that were alive at some time of the window, also those that did nothing."""
    alive = Instance.objects.filter(
        kind=Instance.Kind.WORKER, started_at__lt=window.end, heartbeat_at__gte=window.start
    )
    names = alive.order_by("name").values_list("name", flat=True).distinct()
    return list(names[:MOST_WORKERS])
