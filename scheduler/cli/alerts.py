"""``aegis alerts``: look at the rules from cron, list what is open, try the channels."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand

from scheduler.alerts.channels import title
from scheduler.alerts.look import look
from scheduler.alerts.trial import send_test
from scheduler.cli._table import of_rows
from scheduler.models import Alert
from scheduler.models.alert import OPEN_FIRST

HELP = "Look at the rules of alerts now, list those that are not closed, or send a test to every channel."

NOT_WELL, UNAVAILABLE = 1, 69
MOST = 500  # alerts listed


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    check = actions.add_parser("check", help="look now; exit 1 while an alert is open, 69 without the database")
    listed = actions.add_parser("list", help="the alerts that are not closed")
    for shown in (check, listed):
        shown.add_argument("--format", choices=("table", "json"), default="table")
    actions.add_parser("test", help="send a test to every channel; exit 1 if one was not told")


def run(command: BaseCommand, *, action: str, format: str = "table", **options: Any) -> int | None:
    if action == "test":
        told = send_test()
        for one in told:
            command.stdout.write(f"{one.channel}\t{'told' if one.ok else 'NOT told'}\t{one.detail}")
        return None if all(one.ok for one in told) else NOT_WELL
    troubles: dict[str, str] = {}
    if action == "check":
        found = look(_who(), every=0)
        troubles = found.troubles if found else {}
    live = Alert.objects.exclude(state=Alert.State.CLOSED)
    rows = [_row(alert) for alert in live.order_by(*OPEN_FIRST)[:MOST]]
    more = max(live.count() - MOST, 0)
    for key, why in troubles.items():
        command.stderr.write(f"rule {key} could not be looked at: {why}")
    if more:
        command.stderr.write(f"{more} more are not closed and not listed")
    _write(command, rows, more, format)
    unwell = troubles or Alert.objects.filter(state=Alert.State.OPEN).exists()
    return NOT_WELL if action == "check" and unwell else None


def _write(command: BaseCommand, rows: list[dict[str, Any]], more: int, format: str) -> None:
    if format == "json":
        command.stdout.write(json.dumps({"schema": 1, "alerts": rows, "more": more}, indent=2))
    elif rows:
        command.stdout.write(of_rows(rows))


def _row(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "state": alert.state,
        "rule": title(alert),
        "subject": alert.subject,
        "count": alert.count,
        "first_seen": alert.first_seen.isoformat(timespec="seconds"),
        "last_seen": alert.last_seen.isoformat(timespec="seconds"),
        "message": alert.message,
    }


def _who() -> str:
    with suppress(KeyError, OSError):
        return f"{getpass.getuser()}, command line"
    return "command line"
