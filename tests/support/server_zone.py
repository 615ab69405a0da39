"""A server whose sessions begin in another time zone than UTC, as after ``initdb`` on a machine in Berlin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from locks.connection import close_all

_SET = "ALTER ROLE CURRENT_USER IN DATABASE {database} {what}"


@contextmanager
def server_in_zone(zone: str) -> Iterator[None]:
    """New sessions on the test database begin in ``zone``; afterwards as before. Ours are made anew for both."""
    _alter(f"SET timezone TO '{zone}'")
    try:
        yield
    finally:
        _alter("RESET timezone")


def _alter(what: str) -> None:
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        cursor.execute(_SET.format(database=database, what=what))
    close_all()
