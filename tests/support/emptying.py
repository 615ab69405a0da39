"""Empty the tables after a test whose rows other processes had to see.

Django's own way truncates all tables and makes content types and permissions anew, a third of a second for each of
fifteen hundred tests. Here only the tables with rows are truncated, with those that refer to them; content types and
permissions, the same for every test, stay.
"""

from __future__ import annotations

from django.db import OperationalError, connections
from psycopg import sql
from psycopg.errors import DeadlockDetected

KEPT = ("django_migrations", "django_content_type", "auth_permission")

_REFERENCES = "SELECT confrelid::regclass::text, conrelid::regclass::text FROM pg_constraint WHERE contype = 'f'"


def empty_tables(alias: str) -> None:
    """Truncate what has rows. A table that refers to a row that goes is emptied as well.

    A request that a browser still has under way holds one table and may want the next: whoever the database picks
    to end the deadlock, this comes again.
    """
    for _ in range(2):
        try:
            _empty_tables(alias)
        except OperationalError as trouble:
            if not isinstance(trouble.__cause__, DeadlockDetected):
                raise
        else:
            return
    _empty_tables(alias)


def _empty_tables(alias: str) -> None:
    connection = connections[alias]
    if not connection.is_usable():  # a test has ended its server's session
        connection.close()
    with connection.cursor() as cursor:
        tables = [name for name in connection.introspection.table_names(cursor) if name not in KEPT]
        cursor.execute(_which_have_rows(tables))
        if found := [table for (table,) in cursor.fetchall()]:
            cursor.execute(_REFERENCES)
            names = sorted(_with_referring(found, cursor.fetchall()))
            cursor.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(map(sql.Identifier, names))))


def _which_have_rows(tables: list[str]) -> sql.Composed:
    one = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})")
    return sql.SQL(" UNION ALL ").join(one.format(sql.Literal(name), sql.Identifier(name)) for name in tables)


def _with_referring(tables: list[str], references: list[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    more = set(tables)
    while more:
        found |= more
        more = {table for referred, table in references if referred in more} - found
    return found
