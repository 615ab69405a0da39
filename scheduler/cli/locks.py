"""``aegis locks``: who holds what now, and releasing by force."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from locks.base import validate_name
from scheduler import held, releasing
from scheduler.changes import Refused
from scheduler.cli._operate import who_commands
from scheduler.cli._table import table
from scheduler.dashboard.locks_page import as_json
from scheduler.models import LockRelease

HELP = "List what every store holds now, or release one lease by force."

UNAVAILABLE = 69
_HEAD = ("LOCK", "STRATEGY", "HOLDER", "SCHEDULE", "TOKEN", "EXPIRES IN", "STATE", "LEASE")


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listed = actions.add_parser(
        "list", help="every held name of every alias of LOCKS; exit 69: a store did not answer"
    )
    listed.add_argument("--format", choices=("table", "json"), default="table")
    release = actions.add_parser(
        "release",
        help="end one lease, if it still holds the name; exit 1: it does not, 69: not known",
        description="End one lease by force. Its body goes on until it notices: a second run can start beside it.",
    )
    release.add_argument("name", help="the lock name")
    release.add_argument("--alias", required=True, help="the strategy: an alias of LOCKS")
    release.add_argument("--lease", required=True, type=UUID, help="the lease, as `aegis locks list` shows it")
    release.add_argument("--reason", required=True, help="why; kept on record")
    release.add_argument("--by", help="who (default: who runs this command)")


def run(command: BaseCommand, *, action: str, **options: Any) -> int:
    return _list(command, **options) if action == "list" else _release(command, **options)


def _list(command: BaseCommand, *, format: str, **_: Any) -> int:
    found = held.locks()
    if format == "json":
        command.stdout.write(json.dumps(as_json(found), indent=2))
    else:
        command.stdout.write(table(_HEAD, [_cells(one) for one in found.held]) if found.held else "No lock is held.")
        for row in found.unlocked:
            command.stdout.write(f"{row.lock_name} ({row.lock_alias}): {row.worker} runs without its lock.")
    for one in found.unread:
        command.stderr.write(f"{one.alias}: unreachable, locks unknown: {one.why}")
    return UNAVAILABLE if found.unread else 0


def _cells(one: held.Held) -> tuple[object, ...]:
    left = "with its session" if one.left is None else f"{one.left:.1f} s"
    info = one.info
    return info.name, info.alias, one.worker, one.schedule, one.token, left, one.state, info.lease_id


def _release(
    command: BaseCommand, *, name: str, alias: str, lease: UUID, reason: str, by: str | None, **_: Any
) -> int:
    try:
        validate_name(name)
        releasing.refuse_unknown(alias)
        seen = releasing.look(alias, name)
        row = releasing.release(alias, name, lease, why=reason, who=who_commands(by), seen=seen)
    except (Refused, ValueError) as refusal:
        raise CommandError(f"{name}: {refusal}", returncode=1) from refusal
    except releasing.StoreUnreachable as why:
        raise CommandError(f"{alias}: unreachable, nothing was released: {why}", returncode=UNAVAILABLE) from why
    if row.result == LockRelease.Result.RELEASED:
        command.stdout.write(f"Released: {name} ({alias}), lease {lease}.")
        return 0
    unknown = row.result == LockRelease.Result.UNKNOWN
    said = "It is not known whether it was released." if unknown else f"{row.get_result_display()}."
    raise CommandError(f"{name}: {said} {row.detail}", returncode=UNAVAILABLE if unknown else 1)
