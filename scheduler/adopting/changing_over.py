"""Adopting: a row is looked at, stored as a disabled schedule, and changed over, each row by itself."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from scheduler import pausing
from scheduler.adopting import Unfit
from scheduler.adopting.rows import Plan, plan
from scheduler.changes import Who
from scheduler.editing import declaring
from scheduler.editing.storing import changes
from scheduler.models import Schedule

WHY = "adopted from django-celery-beat"


def existing(row: Any) -> Schedule | None:
    """The schedule of that name. Raises ``Unfit`` where it is of another task, or two rows would share it."""
    if row.name != row.name.strip():
        raise Unfit("Its name begins or ends with a space, which that of a schedule does not. Rename the row.")
    found = Schedule.objects.filter(name=row.name).first()
    if found is not None and found.task != row.task:
        raise Unfit(f"The name is that of a schedule of {found.task}. Rename the row.")
    return found


def look(row: Any) -> tuple[Schedule, Plan]:
    """The schedule that it would be; nothing is stored. Raises ``Unfit`` and ``ValidationError``."""
    planned = plan(row, timezone.now())
    form = declaring.checked(row.name, planned.given)
    schedule: Schedule = form.instance
    schedule.lock_id = form.cleaned_data["lock_name"]
    return schedule, planned


def differences(row: Any) -> list[str]:
    """Fields in which its schedule is stored otherwise than the row says now; none where the row says nothing fit.

    Neither ``enabled`` nor the lock name, which are chosen for the schedule.
    """
    try:
        given = plan(row, timezone.now()).given
        said = {field: value for field, value in given.items() if field not in ("enabled", "lock_name")}
        return sorted(changes(declaring.checked(row.name, said)))
    except (ValueError, ValidationError):
        return []


def adopt(row: Any, *, who: Who) -> tuple[Schedule, Plan]:
    """Store it as a disabled schedule. Raises ``Unfit`` and ``ValidationError``."""
    planned = plan(row, timezone.now())
    return declaring.put(row.name, planned.given, who=who, why=WHY), planned


def change_over(row: Any, *, who: Who) -> Schedule:
    """Let the schedule fire instead of its row, from one transaction on; again changes nothing.

    Both edits are followed within two seconds, and nothing from before is fired. Raises ``Unfit`` where the schedule
    would not fire: the row is left as it is then.
    """
    with transaction.atomic():
        row = type(row).objects.select_for_update().get(pk=row.pk)
        schedule = existing(row)
        if schedule is None:
            raise Unfit("There is no schedule of this name yet: adopt it with --write.")
        if not row.enabled:
            if schedule.enabled:
                return schedule
            raise Unfit("The row is disabled. If it is wanted, enable the schedule: aegis schedules enable.")
        _check_fires(schedule)
        row.enabled = False
        row.save()  # beats hear of save(), and not of update()
        if schedule.enabled:
            return schedule
        return pausing.switch(schedule.name, enabled=True, why=WHY, who=who)


def _check_fires(schedule: Schedule) -> None:
    now = timezone.now()
    if schedule.is_paused(now):
        raise Unfit("The schedule is paused: resume it first.")
    if schedule.recurrence().next_after(now) is None:
        raise Unfit("The schedule never fires any more: give it a later time first.")
