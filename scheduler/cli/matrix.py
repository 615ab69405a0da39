"""``aegis matrix``: measurements of ``aegis soak`` for the pages, and the table of failures."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduler.failures import FAILURES, STRATEGIES
from scheduler.measurements import NotASoak, load
from scheduler.models import MeasuredRun

HELP = "Load what `aegis soak --output` wrote, for the failure matrix; list the runs; show what is documented."


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="what", required=True, metavar="what")
    one = verbs.add_parser("load", help="store runs; the same file twice is one run")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE")
    verbs.add_parser("list", help="the runs that are stored")
    shown = verbs.add_parser("show", help="what is documented of each failure and strategy")
    shown.add_argument("--format", choices=("table", "json"), default="table")


def run(command: BaseCommand, *, what: str, **options: Any) -> int | None:
    """Raises ``CommandError`` with the file that is at fault."""
    if what == "load":
        for path in options["files"]:
            command.stdout.write(_load(path))
    elif what == "list":
        for stored in MeasuredRun.objects.all():
            command.stdout.write(f"{stored.pk}: {stored}, version {stored.version}, commit {stored.commit or '-'}")
    elif options["format"] == "json":
        rows = {f.key: {alias: f.cells[alias].words for alias in STRATEGIES} for f in FAILURES}
        command.stdout.write(json.dumps({"schema": "aegis.failures.1", "failures": rows}, indent=2))
    else:
        for failure in FAILURES:
            command.stdout.write(failure.title)
            for alias in STRATEGIES:
                command.stdout.write(f"  {alias:<10} {failure.cells[alias].words}")
    return None


def _load(path: Path) -> str:
    try:
        stored, new = load(path.read_text())
    except (OSError, UnicodeDecodeError, NotASoak) as trouble:
        raise CommandError(f"{path}: {trouble}") from trouble
    return f"{path}: {'stored' if new else 'was stored already'}: {stored}"
