"""Two projects in one database: a PostgreSQL schema keeps their catalogs, ledgers and leases apart."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
import pytest

from locks import lock_backends
from scheduler.models import LockName
from tests.support import CeleryProcesses, wait_until
from tests.support.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)

SCHEMA = "billing"
HOLD = """
import signal
from locks import lock_backends
from scheduler.models import LockName
LockName.objects.create(name="shared", alias_wanted="database", alias_in_force="database")
for alias in ("database", "optimistic", "advisory", "row_lock"):
    assert lock_backends[alias].acquire("shared." + alias, ttl=60) is not None, alias
print("holds all")
signal.pause()
"""


def test_a_schema_of_its_own_keeps_rows_and_leases_apart(
    celery_processes: CeleryProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    separator = "&" if "?" in database_url() else "?"
    address = f"{database_url()}{separator}options={quote(f'-c search_path={SCHEMA}')}"
    other = {"DATABASE_URL": address}
    with psycopg.connect(database_url(), autocommit=True) as session:
        session.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        session.execute(f"CREATE SCHEMA {SCHEMA}")
        try:
            migrate = celery_processes.python("migrate", "manage.py", "migrate", "-v", "0", env=other)
            assert migrate.wait(120) == 0, migrate.log.read_text()
            holder = celery_processes.python("holder", "manage.py", "shell", "-v", "0", "-c", HOLD, env=other)
            wait_until(lambda: "holds all" in holder.log.read_text(), timeout=60, message=holder.log.read_text)
            assert not LockName.objects.filter(name="shared").exists()
            for alias in ("database", "optimistic", "row_lock"):
                lease = lock_backends[alias].acquire(f"shared.{alias}", ttl=60)
                assert lease is not None and lock_backends[alias].release(lease)
            assert lock_backends["advisory"].acquire("shared.advisory", ttl=60) is None  # a number of the database
        finally:
            celery_processes.stop()
            session.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
