"""``aegis schedules``: the catalog, and the next runs of one schedule, from the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from scheduler.models import Schedule

HELP = "List the schedules, or show the next runs of one."

MOST = 1000  # runs shown at once


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "next"), help="what to show")
    parser.add_argument("name", nargs="?", help="the schedule, for next")
    parser.add_argument("-n", "--count", type=_count, default=5, help="how many runs (default 5)")
    parser.add_argument("--format", choices=("table", "json"), default="table")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST}")
    return int(text)


def run(
    command: BaseCommand, *, action: str, name: str | None, count: int, format: str, **options: Any
) -> int | None:
    rows = _list() if action == "list" else _next(name, count)
    if format == "json":
        command.stdout.write(json.dumps({"schema": 1, action: rows}, indent=2))
        return None
    for row in rows:
        command.stdout.write("\t".join(str(value) for value in row.values()))
    return None


def _list() -> list[dict[str, Any]]:
    now = timezone.now()
    return [
        {
            "name": schedule.name,
            "state": schedule.state_word(now),
            "next_fire_at": schedule.next_fire_at.isoformat() if schedule.next_fire_at else None,
            "strategy": schedule.lock.alias_in_force or schedule.lock.alias_wanted,
            "once_per_tick": schedule.once_per_tick,
            "task": schedule.task,
        }
        for schedule in Schedule.objects.select_related("lock").order_by("name")
    ]


def _next(name: str | None, count: int) -> list[dict[str, Any]]:
    """By the engine that fires: the same answer as the form's preview and the ticker."""
    if name is None:
        raise CommandError("Name the schedule: aegis schedules next NAME.", returncode=2)
    schedule = Schedule.objects.filter(name=name).first()
    if schedule is None:
        known = ", ".join(Schedule.objects.order_by("name").values_list("name", flat=True)[:10]) or "none yet"
        raise CommandError(f"There is no schedule {name!r}. Known: {known}.", returncode=1)
    runs = schedule.recurrence().preview(timezone.now(), count)
    return [{"utc": run.at.isoformat(), "local": run.local_text, "note": run.note} for run in runs]
