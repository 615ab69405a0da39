"""``aegis fill``: a ledger of a day as large as one likes, to see how fast the pages are."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from aegis_site.demo.filling import empty, fill
from locks import lock_backends
from scheduler.dashboard.summing import sum_up

HELP = "Fill the ledger with invented rows, to try the pages on them. For a trial database only."

HOURS = 24


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--executions", type=_number, default=1_000_000, help="about so many (default 1,000,000)")
    parser.add_argument("--hours", type=float, default=HOURS, help=f"over the last so many hours (default {HOURS})")
    parser.add_argument("--empty", action="store_true", help="take away what was filled, and fill nothing")


def _number(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not digits.isdecimal() or not 1 <= int(digits) <= 100_000_000:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 100,000,000")
    return int(digits)


def run(command: BaseCommand, *, executions: int, hours: float, **options: Any) -> int | None:
    """Says how long it took, on stderr."""
    if options["empty"]:
        empty()
        return None
    began = time.monotonic()
    filled = fill(executions, hours * 3600, sorted(lock_backends.aliases()))
    if not connection.in_atomic_block:
        with connection.cursor() as cursor:  # as autovacuum would have by then
            cursor.execute("VACUUM ANALYZE aegis_scheduler_tick, aegis_scheduler_execution")
    stored = time.monotonic()
    command.stdout.write(f"{filled.ticks:,} ticks and {filled.executions:,} executions")
    slices = 0
    while more := sum_up():
        slices += more
    summed = time.monotonic()
    command.stderr.write(
        f"stored in {stored - began:.0f} s, {slices} slices of five minutes summed in {summed - stored:.0f} s"
    )
    return None
