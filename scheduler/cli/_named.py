"""The schedule that a command names."""

from __future__ import annotations

from django.core.management.base import CommandError

from scheduler.models import Schedule


def named(name: str | None) -> Schedule:
    """The schedule of that name. Raises ``CommandError``: 2 where none is named, or none has that name."""
    if name is None:
        raise CommandError("Name the schedule: aegis schedules next NAME.", returncode=2)
    schedule = Schedule.objects.filter(name=name).first()
    if schedule is None:
        known = ", ".join(Schedule.objects.order_by("name").values_list("name", flat=True)[:10]) or "none yet"
        raise CommandError(f"There is no schedule {name!r}. Known: {known}.", returncode=2)
    return schedule
