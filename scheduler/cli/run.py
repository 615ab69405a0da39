"""``aegis run``: one exclusive run of a schedule now, and what became of it."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError

from scheduler import running
from scheduler.changes import Refused
from scheduler.cli._named import named
from scheduler.cli._operate import who_commands
from scheduler.cli._values import instant
from scheduler.models import Tick
from scheduler.states import TickOutcome

HELP = (
    "Run a schedule now, under its lock. Exit 0: it ran; 1: it failed; 2: not asked for; 75: held, or not over in "
    "time; 69: no store."
)

RAN, FAILED, HELD, UNAVAILABLE = 0, 1, 75, 69
MOST = 86_400
_LOOK = 0.2  # seconds between two looks
_STATUS = {
    TickOutcome.EXECUTED: RAN,
    TickOutcome.PREVENTED: HELD,
    TickOutcome.MISFIRED: HELD,
    TickOutcome.BLOCKED: UNAVAILABLE,
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the schedule")
    parser.add_argument("--wait", type=_seconds, default=60.0, metavar="S", help="seconds to wait for its end (60)")
    parser.add_argument(
        "--for", dest="fire_time", type=instant, metavar="WHEN",
        help="a past fire time that failed or was missed, such as 2027-01-31T02:00Z: it is run again as that one",
    )  # fmt: skip
    parser.add_argument("--key", default="", help="the same key asks for the same run, however often it is given")
    parser.add_argument(
        "--if-held", choices=("skip", "queue_one"), default="", help="instead of what the schedule says"
    )
    parser.add_argument("--reason", default="", help="why; kept in the change history")
    parser.add_argument("--by", help="who (default: who runs this command)")
    parser.add_argument("--format", choices=("table", "json"), default="table")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {MOST}")
    return seconds


def run(
    command: BaseCommand, *, name: str, wait: float, fire_time: datetime | None, key: str, if_held: str, reason: str,
    by: str | None, format: str, **_: Any,
) -> int:  # fmt: skip
    try:
        named(name)
        tick = running.ask(
            name, key=key or str(uuid4()), who=who_commands(by), why=reason, if_held=if_held, fire_time=fire_time
        )
        standing = _wait(tick, wait)
    except Refused as refusal:
        raise CommandError(f"{name}: {refusal}", returncode=2) from refusal
    status = _STATUS.get(TickOutcome(tick.outcome), FAILED) if standing.over else HELD
    if format == "json":
        command.stdout.write(json.dumps(_json(tick, standing, status), indent=2))
    else:
        command.stdout.write(f"{name}: {standing.word}. {standing.said}")
    if not standing.over:
        command.stderr.write(f"Not over within {wait:g} s; it goes on by itself. The same --key asks for it again.")
    return status


def _wait(tick: Tick, patience: float) -> running.Standing:
    """Until it is over, for ``patience`` seconds at most; ``tick`` is read anew."""
    until = time.monotonic() + patience
    while True:
        tick.refresh_from_db()
        standing = running.standing(tick)
        if standing.over or time.monotonic() >= until:
            return standing
        time.sleep(_LOOK)


def _json(tick: Tick, standing: running.Standing, status: int) -> dict[str, Any]:
    execution, holder = standing.execution, standing.holder
    return {
        "schema": 1,
        "schedule": tick.schedule_name,
        "tick": tick.pk,
        "state": standing.word,
        "said": standing.said,
        "over": standing.over,
        "outcome": tick.outcome or None,
        "execution": execution.pk if execution else None,
        "worker": execution.worker if execution else None,
        "token": execution.token if execution else None,
        "holder": holder.worker if holder else None,
        "exit_status": status,
    }
