"""``aegis prune``: old ticks and executions leave the ledger."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand

from scheduler.pruning import MOST_DAYS, prune

HELP = "Delete ticks and executions that ended long ago; never what is open, running or a schedule's newest tick."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--older-than", type=_days, required=True, metavar="DAYS", help="whole days, from 1")


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_DAYS:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_DAYS}")
    return int(text)


def run(command: BaseCommand, *, older_than: int, **options: Any) -> int | None:
    gone = prune(timedelta(days=older_than))
    command.stdout.write(
        f"Deleted {gone.ticks} ticks, {gone.executions} executions and {gone.instances} silent processes."
    )
    return None
