"""``aegis prune``: old ticks and executions leave the ledger."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand

from scheduler.cli._values import whole
from scheduler.pruning import MOST_DAYS, prune

HELP = "Delete ticks and executions that ended long ago; never what is open, running or a schedule's newest tick."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=whole(MOST_DAYS), required=True, metavar="DAYS", help="whole days, from 1"
    )


def run(command: BaseCommand, *, older_than: int, **options: Any) -> int | None:
    gone = prune(timedelta(days=older_than))
    command.stdout.write(
        f"Deleted {gone.ticks} ticks, {gone.executions} executions and {gone.instances} silent processes."
    )
    return None
