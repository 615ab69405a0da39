"""``aegis soak``: real processes under real faults, until N ticks have passed; then the verdict."""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from rich.console import Console

from aegis_site.demo.cli.demo import PIPED_WIDTH, UNAVAILABLE, positive
from aegis_site.embedded import EmbeddedError
from aegis_site.soak.fleet import SoakError
from aegis_site.soak.measured import commit
from aegis_site.soak.plan import FaultKind
from aegis_site.soak.report import Verdict, as_json, show
from aegis_site.soak.run import Soak
from scheduler.version import VERSION

HELP = "Run real workers and beats under faults and say which promises held. Exit 1: one did not; 3: inconclusive."

BROKEN = 1
INCONCLUSIVE = 3


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--ticks", type=positive, default=2000, help="how many ticks (default 2000)")
    parser.add_argument("--workers", type=positive, default=4, help="worker processes (default 4)")
    parser.add_argument("--beats", type=positive, default=2, help="beat processes (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan of faults (default 1)")
    parser.add_argument(
        "--faults", type=_kinds, default=list(FaultKind), help="comma separated; default all: " + ",".join(FaultKind)
    )
    parser.add_argument("--no-tick-guard", action="store_true", help="off for every schedule, to see what it is for")
    parser.add_argument("--no-commit-guard", action="store_true", help="off for every body, to see what it is for")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="of the verdict on stdout")
    parser.add_argument("--output", type=Path, help="also write the verdict, as JSON, to this file")


def _kinds(text: str) -> list[FaultKind]:
    try:
        return [FaultKind(word) for word in text.split(",") if word and text != "none"]
    except ValueError as unknown:
        raise ArgumentTypeError(f"{unknown}; known: none or some of {', '.join(FaultKind)}") from unknown


def run(
    command: BaseCommand, *, ticks: int, workers: int, beats: int, seed: int, faults: list[FaultKind],
    no_tick_guard: bool, no_commit_guard: bool, output: Path | None, **options: object,
) -> int | None:  # fmt: skip
    """Run to the end, tell the verdict, return the exit status. Raises ``CommandError`` with what to do."""
    console = Console(stderr=True)
    folder = _empty(Path(settings.EMBEDDED_DIR) / "soak")
    call_command("migrate", verbosity=0, interactive=False)
    began, revision = time.monotonic(), commit(settings.BASE_DIR)
    soak = Soak(
        folder, workers=workers, beats=beats, seed=seed, kinds=faults, tick_guard=not no_tick_guard,
        commit_guard=not no_commit_guard, say=console.print,
    )  # fmt: skip
    try:
        history = soak.run(ticks)
    except (SoakError, EmbeddedError) as trouble:
        raise CommandError(str(trouble), returncode=UNAVAILABLE) from trouble
    verdict = Verdict.of(history, time.monotonic() - began)
    told = as_json(
        verdict, asked_ticks=ticks, workers=workers, beats=beats, seed=seed, tick_guard=not no_tick_guard,
        commit_guard=not no_commit_guard, version=VERSION, commit=revision,
        at=timezone.now().isoformat(timespec="seconds"),
    )  # fmt: skip
    if output is not None:
        output.write_text(json.dumps(told, indent=2) + "\n")
    if options["format"] == "json":
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        show(verdict, Console(width=None if sys.stdout.isatty() else PIPED_WIDTH))
    return BROKEN if verdict.broken else INCONCLUSIVE if verdict.inconclusive else None


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
