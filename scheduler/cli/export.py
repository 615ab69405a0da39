"""``aegis export``: the ledger on stdout, row by row."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand

from scheduler.cli._named import named
from scheduler.cli._values import instant
from scheduler.exporting import EXPORTS, FORMATS, lines

HELP = "Write executions or ticks to stdout as CSV or JSON lines, oldest first."
PIPE_CLOSED = 141  # as a shell calls the end by SIGPIPE
ALL = 2**62  # the command has no limit unless one is given


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=[*EXPORTS])
    parser.add_argument("--format", choices=[*FORMATS], default="csv")
    parser.add_argument("--since", type=instant, metavar="ISO", help="due at or after this instant")
    parser.add_argument("--until", type=instant, metavar="ISO", help="due before this instant")
    parser.add_argument("--schedule", metavar="NAME", help="of one schedule only")


def run(
    command: BaseCommand,
    *,
    what: str,
    format: str,
    since: datetime | None,
    until: datetime | None,
    schedule: str | None,
    **options: Any,
) -> int | None:
    export = EXPORTS[what]
    of_schedule = export.due.replace("fire_time", "schedule")
    limits: dict[str, Any] = {f"{export.due}__gte": since, f"{export.due}__lt": until}
    if schedule is not None:
        limits[of_schedule] = named(schedule)
    rows = export.model._default_manager.filter(**{key: value for key, value in limits.items() if value is not None})
    try:
        for line in lines(export, rows.order_by(export.due, "pk"), format, ALL):
            command.stdout.write(line, ending="")
        command.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), command.stdout.fileno())  # for what Python writes at its end
        raise SystemExit(PIPE_CLOSED) from None
    return None
