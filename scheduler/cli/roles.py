"""``aegis roles``: the groups Aegis viewer, operator and admin."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand, CommandError

from scheduler.cli._table import table
from scheduler.roles import ROLES, make_groups

HELP = "Make the groups Aegis viewer, operator and admin, or give them what they lack; shows what each may do."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what each may do")


def run(command: BaseCommand, *, dry_run: bool, **_: Any) -> int | None:
    try:
        given = {} if dry_run else make_groups()
    except Permission.DoesNotExist as missing:
        raise CommandError(
            "The permissions are not there yet: run `manage.py migrate` first.", returncode=1
        ) from missing
    every = ROLES["Aegis admin"]
    rows = [(one, *("yes" if one in wanted else "" for wanted in ROLES.values())) for one in every]
    command.stdout.write(table(("PERMISSION", *(name.upper() for name in ROLES)), rows))
    for name, count in given.items():
        command.stderr.write(f"{name}: {count} permissions given.")
    return None
