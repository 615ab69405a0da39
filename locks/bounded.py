"""A connection to PostgreSQL on which nobody waits for ever.

Every statement is bounded three times: the server gives up waiting for a row lock after ``LOCK_TIMEOUT``, gives up
the statement after ``STATEMENT_TIMEOUT``, and the client stops waiting for an answer when its caller's time is over.
The server's bounds alone would need a server that is alive and reachable.
"""

from __future__ import annotations

import re
import select
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg.abc import RV, PQGen
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzLoader

from .clock import boottime
from .statements import Rows, Statement, together

if TYPE_CHECKING:
    from psycopg.abc import Buffer

__all__ = ["STATEMENT_TIMEOUT", "BoundedConnection", "NoAnswer", "NotReplicated", "Rows", "connect"]

LOCK_TIMEOUT = 1.0  # seconds a statement waits for a row lock
STATEMENT_TIMEOUT = 3.0  # seconds a statement may take on the server
CONNECT_TIMEOUT = 3  # whole seconds, as libpq counts them
_STATEMENTS = 100  # that a connection remembers; each may be prepared
_POLL = 0.05  # seconds between two looks at the clock while waiting for an answer

SESSION = {
    "lock_timeout": f"{int(LOCK_TIMEOUT * 1000)}",
    "statement_timeout": f"{int(STATEMENT_TIMEOUT * 1000)}",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
}
"""Settings sent with the start-up message, so that they cost no round trip and survive ``RESET ALL``.

``synchronous_commit=on``: without it a crash of the server can forget a grant *and issue its token again*.
"""


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time. The statement may have run."""


class NotReplicated(psycopg.OperationalError):
    """The server warned about the statement, which it does when it gave up waiting for its standby.

    Such a commit stands on this server and is lost with it: a grant that a failover may forget is none.
    """


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection that stops waiting at ``give_up_at`` (boottime seconds)."""

    give_up_at: float | None = None
    may_prepare = False
    """Whether statements may be prepared here: only on a session of one's own, see ``pooling``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.warnings: list[str] = []
        self._statements: dict[str, Statement] = {}
        self.add_notice_handler(self._heed)
        self._good_bye = select.poll()
        self._good_bye.register(self.fileno(), select.POLLIN)

    def run(
        self, sql: str, params: Mapping[str, Any] | None = None, *, timeout: float, may_warn: bool = False
    ) -> Rows:
        """The rows of one statement, ``[]`` if it has none. ``timeout``: seconds to wait for the answer.

        Raises ``psycopg.Error``; ``NotReplicated`` if the server warned and must not.
        """
        statement = self._statements.get(sql)
        if statement is None:
            statement = Statement(self, sql, b"aegis_%d" % len(self._statements))
            if len(self._statements) < _STATEMENTS:
                self._statements[sql] = statement
        self.give_up_at = boottime() + timeout
        self.warnings.clear()
        rows = statement.run(params)
        if self.warnings and not may_warn:
            raise NotReplicated("; ".join(self.warnings))
        return rows

    def run_together(
        self, sql: str, params: Mapping[str, str | int], *, timeout: float, may_warn: bool = False
    ) -> list[Rows]:
        """The rows of each of several statements, which travel together; see ``statements.together``.

        Raises as ``run`` does.
        """
        self.give_up_at = boottime() + timeout
        self.warnings.clear()
        rows = together(self, sql, params)
        if self.warnings and not may_warn:
            raise NotReplicated("; ".join(self.warnings))
        return rows

    def has_gone(self) -> bool:
        """Whether the server has hung up while the connection was idle.

        An idle connection has nothing to read, unless the server said good-bye. Seen before anything is sent,
        this needs no retry: after a restart of the database the first statement simply goes to a new connection.
        """
        return self.closed or bool(self._good_bye.poll(0))

    def wait(self, gen: PQGen[RV], interval: float = _POLL, timeout: float | None = None) -> RV:
        if self.give_up_at is not None:
            gen = _until(self.give_up_at, gen)
        more = {} if timeout is None else {"timeout": timeout}  # which psycopg knows since 3.3
        return super().wait(gen, interval=min(interval, _POLL), **more)

    def _heed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warnings.append(notice.message_primary or "warning without a text")


def _until(give_up_at: float, gen: PQGen[RV]) -> PQGen[RV]:
    """Drive psycopg's generator ``gen``; raise ``NoAnswer`` once the clock has passed ``give_up_at``."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and boottime() >= give_up_at:
                raise NoAnswer("the database did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as done:
        result: RV = done.value
        return result


class _UtcLoader(TimestamptzLoader):
    """Reads an instant from whatever zone the session is in.

    Django's, which comes with its parameters, takes what it reads for its own zone's without converting: right after
    its ``SET TIME ZONE``, an hour off where role, database or server have another zone and nobody sets it.
    """

    def load(self, data: Buffer) -> datetime:
        return super().load(data).astimezone(UTC)


def _option(name: str, value: str) -> str:
    """One setting as it stands in the start-up message, where an unescaped space would end it."""
    return f"-c {name}=" + re.sub(r"([\\\s])", r"\\\1", value)


def connect(using: str, *, settings: Mapping[str, str] | None = None, **ours: Any) -> BoundedConnection:
    """A new connection to the Django database ``using``, which nothing but the caller knows of.

    Made from ``connections[using].get_connection_params()``, which means that the name of the test database and
    ``OPTIONS`` are honoured, ``assume_role`` too. ``settings`` are added to the session's own (see ``SESSION``),
    ``ours`` are parameters of libpq and psycopg; ``OPTIONS`` of the database go before them. Raises
    ``psycopg.OperationalError``, and ``ImproperlyConfigured`` if the database is no PostgreSQL.
    """
    wrapper = connections[using]
    if wrapper.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"DATABASES[{using!r}]['ENGINE'] is {wrapper.vendor!r}: locks in a database need PostgreSQL."
        )
    params: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT, **ours, **wrapper.get_connection_params()}
    params.pop("cursor_factory", None)
    session = {**SESSION, **(settings or {})}
    if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):  # which Django takes by a statement of its own
        session["role"] = role
    params["options"] = " ".join([params.get("options", ""), *map(_option, session, session.values())]).strip()
    try:
        connection = BoundedConnection.connect(autocommit=True, row_factory=tuple_row, **params)
    except OSError as error:  # the process has no file descriptor left to wait with
        raise psycopg.OperationalError(str(error)) from error
    connection.adapters.register_loader("timestamptz", _UtcLoader)
    return connection
