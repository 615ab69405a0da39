"""``aegis schedules adopt``: rows of django-celery-beat become schedules; a line a row, then what changes meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from scheduler.adopting import Ordinary, Unfit
from scheduler.adopting.changing_over import adopt, change_over, differences, existing, look
from scheduler.beat_admin import APP
from scheduler.changes import Refused, Who
from scheduler.cli._operate import who_commands
from scheduler.models import Schedule

_BROKEN = (Unfit, Refused, ValidationError, ValueError, TypeError, OverflowError)


def add_action(actions: Any) -> None:
    said = "make schedules of rows of django-celery-beat; without an option it only says what it would do"
    parser = actions.add_parser("adopt", help=said, description=said)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of rows (default: all)")
    parser.add_argument("--write", action="store_true", help="store them as schedules, disabled")
    parser.add_argument("--switch", action="store_true", help="disable these rows and enable their schedules")
    parser.add_argument("--by", help="who (default: who runs this command)")


def run(command: BaseCommand, *, rows: Sequence[str], write: bool, switch: bool, by: str | None, **_: Any) -> int:
    """0: done; 1: a row was refused, the others are done; 2: no row of that name, or none named for --switch."""
    if switch and not rows:
        raise CommandError("Name the rows to switch: aegis schedules adopt ROW --switch.", returncode=2)
    refused, who = 0, who_commands(by)
    for row in _rows(rows):
        try:
            for told in _done(row, write=write, switch=switch, who=who):
                command.stdout.write(told if told.startswith(" ") else f"{row.name}: {told}")
        except Ordinary as why:
            refused += bool(rows)  # who names no row wants those that can be adopted
            command.stdout.write(f"{row.name}: left a row: {why}")
        except _BROKEN as why:
            refused += 1
            command.stdout.write(f"{row.name}: refused: {_sentence(why)}")
    return 1 if refused else 0


def _rows(names: Sequence[str]) -> list[Any]:
    if not apps.is_installed(APP):
        raise CommandError(f"{APP} is not in INSTALLED_APPS, so there are no rows.", returncode=1)
    from django_celery_beat.models import PeriodicTask

    every = PeriodicTask.objects.select_related("interval", "crontab", "solar", "clocked").order_by("name")
    found = list(every.filter(name__in=names) if names else every)
    missing = sorted(set(names) - {row.name for row in found})
    if missing:
        known = ", ".join(every.values_list("name", flat=True)[:10]) or "none"
        raise CommandError(f"There is no row {missing[0]!r}. Known: {known}.", returncode=2)
    return found


def _done(row: Any, *, write: bool, switch: bool, who: Who) -> Iterator[str]:
    """Do it, and say so line by line."""
    stored = existing(row)
    if stored is not None:
        yield f"exists, {'enabled' if stored.enabled else 'disabled'}"
        if names := differences(row):
            yield f"  ! it differs from the row in {', '.join(names)}: what the schedule says holds."
    elif write or not switch:
        schedule, planned = adopt(row, who=who) if write else look(row)
        yield f"{'created' if write else 'would create'}, disabled: {_said(schedule)}"
        yield from (f"  ! {changed}" for changed in planned.changes)
    if switch:
        yield f"switched: the row is disabled, the schedule fires; {_next(change_over(row, who=who))}"


def _said(schedule: Schedule) -> str:
    zone = f" in {schedule.time_zone}" if schedule.cron_expression else ""
    return f"{schedule.recurrence().explain()}{zone}; lock name {schedule.lock_id}; {_next(schedule)}"


def _next(schedule: Schedule) -> str:
    at = schedule.recurrence().next_after(timezone.now())
    return f"next run {at:%Y-%m-%d %H:%M:%S} UTC" if at else "no next run"


def _sentence(why: Exception) -> str:
    if not isinstance(why, ValidationError):
        return str(why)
    if not hasattr(why, "error_dict"):
        return " ".join(why.messages)
    return " ".join(f"{field}: {' '.join(told)}" for field, told in why.message_dict.items())
