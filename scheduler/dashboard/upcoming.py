"""What is due next, and what is inside now: read-only queries within a limit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from scheduler.charts.scale import duration_words
from scheduler.models import Execution, Schedule
from scheduler.recurrence_rules import END
from scheduler.states import ExecutionState

MOST_UPCOMING = 10
MOST_RUNNING = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """The next fire time of one schedule."""

    id: int
    name: str
    at: datetime
    wait: str
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A schedule that is paused; ``until`` is None where somebody must resume it, or nobody will live to see it."""

    id: int
    name: str
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A body that may be inside now, and for how long its process has not been heard of (seconds)."""

    id: int
    schedule: str
    worker: str
    lock_name: str
    strategy: str
    token: int | None
    started_at: datetime
    inside: float
    silent: float

    @property
    def inside_words(self) -> str:
        """For how long."""
        return duration_words(self.inside)


def upcoming(now: datetime) -> list[Upcoming]:
    """The next few by their fire time; those that cannot fire are not among them. One query."""
    schedules = Schedule.objects.filter(enabled=True, broken_reason="", next_fire_at__lt=END)
    rows = schedules.select_related("lock").order_by("next_fire_at", "name")[:MOST_UPCOMING]
    return [_upcoming(row, row.next_fire_at, now) for row in rows if row.next_fire_at]


def _upcoming(row: Schedule, at: datetime, now: datetime) -> Upcoming:
    wait = (at - now).total_seconds()
    return Upcoming(
        id=row.pk,
        name=row.name,
        at=at,
        wait=f"in {duration_words(wait)}" if wait > 0 else "due now",
        strategy=row.lock.alias_in_force or row.lock.alias_wanted,
    )


def paused(now: datetime) -> list[Paused]:
    """The schedules that are paused, by name, one more than are shown. One query."""
    rows = Schedule.objects.filter(enabled=True, paused_at__isnull=False).order_by("name")
    rows = rows.filter(Q(paused_until__isnull=True) | Q(paused_until__gt=now))
    found = rows.values_list("pk", "name", "paused_until")[: MOST_UPCOMING + 1]
    return [Paused(id=pk, name=name, until=until if until and until < END else None) for pk, name, until in found]


def running(now: datetime) -> list[Running]:
    """The bodies that have been inside for the longest, the oldest first. One query."""
    rows = Execution.objects.filter(state=ExecutionState.RUNNING).select_related("tick").order_by("started_at")
    return [
        Running(
            id=row.pk,
            schedule=row.tick.schedule_name or row.tick.task,
            worker=row.worker,
            lock_name=row.lock_name,
            strategy=row.lock_alias,
            token=row.token,
            started_at=row.started_at,
            inside=max(0.0, (now - row.started_at).total_seconds()),
            silent=max(0.0, (now - (row.heartbeat_at or row.started_at)).total_seconds()),
        )
        for row in rows[:MOST_RUNNING]
        if row.started_at
    ]


def longest_held(rows: Collection[Running], unlocked: Collection[str]) -> Running | None:
    """The lock that has been held for the longest; a body without a lock holds none."""
    return next((row for row in rows if row.strategy not in unlocked), None)
