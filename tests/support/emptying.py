"""Empty the tables after a test whose rows other processes had to see.

Django's own way truncates all tables and makes content types and permissions anew, a third of a second for each of
fifteen hundred tests. Here only the tables with rows are emptied, and row by row where these are few: a truncated
table gets new files, which the server brings to the disk. Content types and permissions are the same for every test,
and stay.
"""

from __future__ import annotations

from django.db import OperationalError, connections, transaction
from psycopg import sql
from psycopg.errors import DeadlockDetected

KEPT = ("django_migrations", "django_content_type", "auth_permission")

_REFERENCES = "SELECT confrelid::regclass::text, conrelid::regclass::text FROM pg_constraint WHERE contype = 'f'"
_FEW = 1000  # rows


def empty_tables(alias: str) -> None:
    """Empty what has rows, and every table that refers to one of these.

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
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        tables = [name for name in connection.introspection.table_names(cursor) if name not in KEPT]
        cursor.execute(_how_many_rows(tables))
        rows = dict(cursor.fetchall())
        if not any(rows.values()):
            return
        cursor.execute(_REFERENCES)
        names = sorted(_with_referring([name for name, count in rows.items() if count], cursor.fetchall()))
        cursor.execute(_emptied(names, few=max(rows.values()) < _FEW))


def _how_many_rows(tables: list[str]) -> sql.Composed:
    one = sql.SQL("SELECT {}, (SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS few)")
    return sql.SQL(" UNION ALL ").join(
        one.format(sql.Literal(name), sql.Identifier(name), sql.Literal(_FEW)) for name in tables
    )


def _emptied(names: list[str], *, few: bool) -> sql.Composed:
    """Either way nobody writes to one of the tables meanwhile, and no trigger fires: not of keys, not ours."""
    tables = [sql.Identifier(name) for name in names]
    if not few:
        return sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(tables))
    return sql.SQL("; ").join(
        [
            sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.SQL(", ").join(tables)),
            sql.SQL("SET LOCAL session_replication_role = replica"),
            *(sql.SQL("DELETE FROM {}").format(table) for table in tables),
        ]
    )


def _with_referring(tables: list[str], references: list[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    more = set(tables)
    while more:
        found |= more
        more = {table for referred, table in references if referred in more} - found
    return found
