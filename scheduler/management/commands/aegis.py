"""``manage.py aegis <verb>``: one command, a module for each verb."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError

from scheduler.cli import verbs
from scheduler.error_text import storable
from scheduler.exceptions import LedgerUnavailable

UNAVAILABLE = 69
_UNDEFINED = ("42P01", "42703")  # no such table, no such column
_OTHER_TABLES = "The tables are not those of this version: run `manage.py migrate`."


class Command(BaseCommand):
    """Data goes to stdout, the rest to stderr. Exit codes: 0 done, 1 refused, 2 usage, 69 unavailable."""

    help = "Exclusive periodic tasks: `aegis <verb> --help` says what a verb does."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="verb", required=True, metavar="verb")
        for name, verb in verbs().items():
            sub = subparsers.add_parser(name, help=verb.HELP, description=verb.HELP)
            verb.add_arguments(sub)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """Run the verb; a status other than 0 becomes the exit status."""
        try:
            status = verbs()[verb].run(self, **options)
        except (OperationalError, InterfaceError, ProgrammingError, LedgerUnavailable) as trouble:
            if getattr(trouble.__cause__, "sqlstate", None) in _UNDEFINED:
                raise CommandError(_OTHER_TABLES, returncode=UNAVAILABLE) from trouble
            if isinstance(trouble, ProgrammingError):
                raise
            said = storable((str(trouble).splitlines() or [""])[0] or type(trouble).__name__, 300)
            raise CommandError(f"The database does not answer: {said}", returncode=UNAVAILABLE) from trouble
        if status:
            raise CommandError(f"aegis {verb} ended with status {status}.", returncode=status)
