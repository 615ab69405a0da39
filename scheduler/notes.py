"""Notes beside a schedule: what its owner should know and no row of the ledger says by itself."""

from __future__ import annotations

from datetime import datetime

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet

from scheduler.models import Schedule, Tick
from scheduler.models.tick import Overlap
from scheduler.starvation import IN_A_ROW, REMEDY
from scheduler.states import TickOutcome


def noted(schedules: QuerySet[Schedule]) -> QuerySet[Schedule]:
    """The schedules with ``last_outcomes``: of their latest ticks that are over, the latest first. One query."""
    over = Tick.objects.filter(schedule=OuterRef("pk"), manual_key=None).exclude(outcome="")
    latest = over.order_by("-fire_time").values("outcome")[:IN_A_ROW]
    return schedules.annotate(last_outcomes=ArraySubquery(latest))


def notes(schedule: Schedule, at: datetime, declared: frozenset[str] | None) -> list[str]:
    """Sentences about a schedule of ``noted``, as it stands at the aware instant ``at``; usually none.

    ``declared``: what ``declared_names`` answered.
    """
    found = []
    if schedule.broken_reason:
        found.append(schedule.broken_reason)
    if declared is not None and schedule.task not in declared:
        found.append(
            f"Unknown task {schedule.task}: no module here declares it with @exclusive_task. Where the workers have "
            "the same code, its ticks are missed."
        )
    if schedule.is_paused(at):
        found.append(_pause(schedule))
    if is_starved(schedule):
        found.append(REMEDY)
    if is_far_away(schedule, at):
        found.append(
            "The next run is further away than one period: the database's clock was set back, or the rules of the "
            "time zone were changed. `aegis schedules repair` names it anew."
        )
    return found


def is_far_away(schedule: Schedule, at: datetime) -> bool:
    """Whether the recurrence names a fire time between ``at`` and the one that is stored as the next."""
    stored = schedule.next_fire_at
    if stored is None or stored <= at or not schedule.enabled or schedule.broken_reason or schedule.is_paused(at):
        return False
    try:
        named = schedule.recurrence().next_after(at)
    except ValueError:  # a beat will say so
        return False
    return named is not None and named < stored


def _pause(schedule: Schedule) -> str:
    until = f"until {schedule.paused_until:%Y-%m-%d %H:%M:%S} UTC" if schedule.paused_until else "until resumed"
    by = f" by {schedule.paused_by}" if schedule.paused_by else ""
    return f"Paused{by} {until}: {schedule.pause_reason or 'no reason given'}"


def starved() -> QuerySet[Schedule]:
    """The schedules that fire and of which ``is_starved`` holds, by name; chosen by the database."""
    refused = {"overlap": Overlap.SKIP, "last_outcomes": [TickOutcome.PREVENTED.value] * IN_A_ROW}
    return noted(Schedule.objects.filter(enabled=True, next_fire_at__isnull=False)).filter(**refused).order_by("name")


def is_starved(schedule: Schedule) -> bool:
    """Whether a schedule of ``noted`` was refused each of the last times."""
    last = getattr(schedule, "last_outcomes", [])
    return schedule.overlap == Overlap.SKIP and last == [TickOutcome.PREVENTED] * IN_A_ROW
