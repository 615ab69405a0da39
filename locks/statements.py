"""One statement on one connection, sent again and again.

The library's cursor makes a new start each time: it reads the text, looks for the types of the values, and finds out
how to read the answer. For the few statements of a lease that takes as long as the server does. So what was found
out once is kept, and from ``PREPARE_AFTER`` times on, where that is allowed, the statement is prepared and only its
values are sent. They are turned into PostgreSQL's and back by the library as before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import OperationalError, error_from_result
from psycopg.generators import execute as exchange
from psycopg.pq import Escaping, ExecStatus

if TYPE_CHECKING:
    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

    from .bounded import BoundedConnection

PREPARE_AFTER = 5  # times that it was sent; the library's own choice
_PLACE = re.compile(r"%\((\w+)\)s|%%")

Rows = list[tuple[Any, ...]]


class Statement:
    """``sql`` with named parameters, ``%(name)s``."""

    def __init__(self, connection: BoundedConnection, sql: str, name: bytes) -> None:
        self._connection = connection
        self._sql = sql
        self._name = name
        self._cursor = connection.cursor()
        self._sent = 0
        self._types: tuple[int, ...] | None = None  # of the values that it was prepared for
        self._order: list[str] = []
        self._formats: list[PyFormat] = []
        self._transformer = Transformer(connection)

    def run(self, params: Mapping[str, Any] | None) -> Rows:
        """Send it once. Its rows, ``[]`` if it has none. Raises ``psycopg.Error``."""
        self._sent += 1
        if params is not None and self._sent > PREPARE_AFTER and self._connection.may_prepare:
            if self._types is None:
                self._prepare(params)
            values = self._values(params)
            if self._transformer.types == self._types:
                return self._send(values)
        cursor = self._cursor.execute(self._sql, params, prepare=False)
        return [] if cursor.rownumber is None else cursor.fetchall()

    def _prepare(self, params: Mapping[str, Any]) -> None:
        self._order.clear()
        text = _PLACE.sub(self._place, self._sql)
        self._formats = [PyFormat.AUTO] * len(self._order)
        self._values(params)
        types = self._transformer.types or ()
        self._connection.pgconn.send_prepare(self._name, text.encode(), param_types=types)
        self._answer()
        self._types = types

    def _place(self, found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "%"
        if name not in self._order:
            self._order.append(name)
        return f"${self._order.index(name) + 1}"

    def _values(self, params: Mapping[str, Any]) -> Sequence[Buffer | None]:
        return self._transformer.dump_sequence([params[name] for name in self._order], self._formats)

    def _send(self, values: Sequence[Buffer | None]) -> Rows:
        self._connection.pgconn.send_query_prepared(self._name, values, param_formats=self._transformer.formats)
        result = self._answer()
        if result.status != ExecStatus.TUPLES_OK:
            return []
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _answer(self) -> PGresult:
        return _answers(self._connection)[-1]


def together(connection: BoundedConnection, sql: str, params: Mapping[str, str | int]) -> list[Rows]:
    """The rows of each of several statements that travel as one text. Raises the first error of the server.

    Nothing of it is prepared by this. ``params`` are numbers and texts, which are quoted by the library.
    """
    quote = Escaping(connection.pgconn).escape_literal

    def literal(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        value = params[found[1]]
        return str(value) if isinstance(value, int) else bytes(quote(value.encode())).decode()

    connection.pgconn.send_query(_PLACE.sub(literal, sql).encode())
    transformer, found = Transformer(connection), []
    for result in _answers(connection):
        if result.status == ExecStatus.TUPLES_OK:
            transformer.set_pgresult(result)
            found.append(transformer.load_rows(0, result.ntuples, tuple))
        else:
            found.append([])
    return found


def _answers(connection: BoundedConnection) -> Sequence[PGresult]:
    """At least one. Raises the first error of the server."""
    results: Sequence[PGresult] = connection.wait(exchange(connection.pgconn))
    for result in results:
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise error_from_result(result)
    if not results:
        raise OperationalError("the connection ended before an answer came")
    return results
