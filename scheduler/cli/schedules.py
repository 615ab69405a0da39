"""``aegis schedules``: the catalog from the command line. What is shown is here, what is done in ``_operate``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from scheduler.cli import _adopt, _operate
from scheduler.cli._named import named
from scheduler.cli._table import of_rows
from scheduler.cli._values import whole
from scheduler.jitter import delay
from scheduler.models import Schedule
from scheduler.notes import noted, notes
from scheduler.registry import declared_names

HELP = "List, preview, pause, resume, enable, disable, retarget, repair or adopt schedules."

MOST = 1000  # runs shown at once


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listed = actions.add_parser("list", help="the catalog")
    following = actions.add_parser("next", help="the next runs of one, by the engine that fires")
    following.add_argument("name", nargs="?", help="the schedule")
    following.add_argument("-n", "--count", type=whole(MOST), default=5, help="how many runs (default 5)")
    for shown in (listed, following):
        shown.add_argument("--format", choices=("table", "json"), default="table")
    _operate.add_actions(actions)
    _adopt.add_action(actions)


def run(command: BaseCommand, *, action: str, **options: Any) -> int | None:
    if action in _operate.ACTIONS:
        for told in _operate.act(action, **options):
            command.stdout.write(told)
        return None
    if action == "adopt":
        return _adopt.run(command, **options)
    rows = _list() if action == "list" else _next(options["name"], options["count"])
    if options["format"] == "json":
        command.stdout.write(json.dumps({"schema": 1, action: rows}, indent=2))
        return None
    if rows:
        command.stdout.write(of_rows(rows, without=["once_per_tick"]))
    return None


def _list() -> list[dict[str, Any]]:
    now, declared = timezone.now(), declared_names()
    return [
        {
            "name": schedule.name,
            "state": schedule.state_word(now),
            "next_fire_at": schedule.next_fire_at.isoformat() if schedule.next_fire_at else None,
            "strategy": schedule.lock.alias_in_force or schedule.lock.alias_wanted,
            "tick_guard": schedule.once_per_tick,
            "once_per_tick": schedule.once_per_tick,  # as it was called before
            "task": schedule.task,
            "notes": notes(schedule, now, declared),
        }
        for schedule in noted(Schedule.objects.select_related("lock").order_by("name"))
    ]


def _next(name: str | None, count: int) -> list[dict[str, Any]]:
    """By the engine that fires: the same answer as the form's preview and the ticker."""
    schedule = named(name)
    try:
        runs = schedule.recurrence().preview(timezone.now(), count)
    except ValueError as problem:
        raise CommandError(f"{schedule.name}: {problem}", returncode=1) from problem
    rows = [{"utc": run.at.isoformat(), "local": run.local_text, "note": run.note} for run in runs]
    if schedule.jitter_seconds:
        for row, run in zip(rows, runs, strict=True):
            row["jitter"] = f"+{delay(schedule.pk, run.at, schedule.jitter_seconds).total_seconds():.3f} s"
    return rows
