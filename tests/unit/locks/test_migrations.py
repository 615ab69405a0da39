from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from psycopg import sql
from pytest_django import DjangoDbBlocker

SCRATCH = "scratch"


@pytest.fixture
def scratch_database(django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An empty database of this test's own, under the alias ``scratch``."""
    params = connections["default"].get_connection_params()
    params.pop("cursor_factory")
    params["dbname"] = "postgres"
    name = f"scratch_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(**params, autocommit=True) as other:
        other.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    connections.settings[SCRATCH] = {**connections["default"].settings_dict, "NAME": name}
    with django_db_blocker.unblock():
        yield SCRATCH
    connections[SCRATCH].close()
    del connections.settings[SCRATCH]
    del connections[SCRATCH]
    with psycopg.connect(**params, autocommit=True) as other:
        other.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_the_migrations_can_be_taken_back_and_applied_again(scratch_database: str) -> None:
    def objects() -> set[str]:
        with connections[scratch_database].cursor() as cursor:
            cursor.execute("SELECT relname FROM pg_class WHERE relname LIKE 'aegis_locks%' AND relkind IN ('r', 'S')")
            return {name for (name,) in cursor.fetchall()}

    everything = {
        *("aegis_locks_lease", "aegis_locks_claim", "aegis_locks_fence", "aegis_locks_token"),
        *("aegis_locks_advisory", "aegis_locks_row"),
    }
    for _ in range(2):
        call_command("migrate", "aegis_locks", database=scratch_database, verbosity=0)
        assert objects() == everything
        call_command("migrate", "aegis_locks", "zero", database=scratch_database, verbosity=0)
        assert objects() == set()
