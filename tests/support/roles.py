"""A role of the database that may do with Aegis's tables what it wants, and nothing besides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections

from locks import bounded, connection

ROLE = "aegis_plain"


@contextmanager
def plain_role() -> Iterator[None]:
    """Connections that are made for locks inside are that role's. Sessions at rest are closed, before and after."""
    with connections["default"].cursor() as cursor:
        cursor.execute(f"DROP ROLE IF EXISTS {ROLE}")
        cursor.execute(f"CREATE ROLE {ROLE}")
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(bounded.SESSION, "role", ROLE)
            connection.close_all()
            yield
    finally:
        connection.close_all()
        with connections["default"].cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {ROLE}")
            cursor.execute(f"DROP ROLE {ROLE}")
