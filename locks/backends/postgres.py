"""What the backends that ask PostgreSQL over this package's own connection have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from .. import connection
from ..examination import postgres
from ..exceptions import LockUnavailable
from ..findings import Findings
from .base import BaseLockBackend
from .params import ParamsValidator


class PostgresParams(ParamsValidator):
    """``LOCATION`` is a Django database alias, ``default`` if it is not given."""

    def check_backend(self) -> None:
        using = self.params.get("LOCATION") or DEFAULT_DB_ALIAS
        if using not in settings.DATABASES:
            known = ", ".join(sorted(settings.DATABASES))
            remedy = f"Name one of settings.DATABASES: {known}"
            self.error("LOCATION", f"there is no database {using!r}", remedy, 6)
        elif connections[using].vendor != "postgresql":
            remedy = "Name a database whose ENGINE is django.db.backends.postgresql"
            self.error("LOCATION", f"database {using!r} is no PostgreSQL", remedy, 6)
        else:
            self.check_database(settings.DATABASES[using])

    def check_database(self, entry: Mapping[str, Any]) -> None:
        """Rules for the entry of ``settings.DATABASES`` that ``LOCATION`` names."""


class PostgresBackend(BaseLockBackend):
    """Knows its database and turns each trouble with it into ``LockUnavailable``."""

    params_validator: ClassVar[type[ParamsValidator]] = PostgresParams
    longest_exchange = connection.STATEMENT_TIMEOUT

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.using: str = params.get("LOCATION") or DEFAULT_DB_ALIAS

    def place(self) -> Sequence[str]:
        entry = connections[self.using].settings_dict
        named = (*(entry[part] for part in ("HOST", "PORT", "NAME")), entry["OPTIONS"].get("service"))
        return [str(part or "") for part in named]

    def examine(self) -> Findings:
        return postgres.examine(self.using)

    def close(self) -> None:
        connection.close_all(using=self.using)

    def _execute(
        self, action: str, name: str, sql: str, params: Mapping[str, Any], timeout: float | None = None
    ) -> connection.Rows:
        try:
            return connection.execute(sql, params, using=self.using, timeout=timeout or connection.ANSWER_TIMEOUT)
        except psycopg.Error as error:
            raise self._doubt(action, name, error) from error

    def _doubt(self, action: str, name: str, error: psycopg.Error) -> LockUnavailable:
        return LockUnavailable(
            f"Lock {name!r} ({self.alias}): database {self.using!r} cannot {action}: {_reason(error)}.",
            name=name,
            alias=self.alias,
        )


def _reason(error: psycopg.Error) -> str:
    """One line about ``error``, with the remedy where there is a known one."""
    if isinstance(error, psycopg.errors.UndefinedTable):
        return "its tables are missing, run manage.py migrate"
    first_line = (str(error).splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first_line}"
