from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import psycopg
import pytest
from django.core.management import call_command

from locks import LeaseLost, LockUnavailable, connection, exclusive, lock_backends
from locks.backends import session_registry
from locks.backends.row_lock import LOCK, RowLockBackend
from tests.contract.resting import RestingSessions
from tests.contract.sessions import SessionBackendContract, other_session


@pytest.mark.django_db
class TestRowLock(RestingSessions, SessionBackendContract):
    alias = "row_lock"
    lock_sql = LOCK

    @property
    def backend(self) -> RowLockBackend:
        return cast("RowLockBackend", lock_backends[self.alias])

    @contextmanager
    def locked_by_hand(self, name: str) -> Iterator[None]:
        with other_session() as other, other.transaction():
            other.execute("SELECT FROM aegis_locks_row WHERE name = %s FOR UPDATE", [name])
            yield

    def test_a_name_without_a_row_is_seeded_never_busy(self, name: str) -> None:
        rows = "SELECT count(*) FROM aegis_locks_row WHERE name = %(name)s"
        assert connection.execute(rows, {"name": name}) == [(0,)]
        self.acquired(name)
        assert connection.execute(rows, {"name": name}) == [(1,)]

    def test_a_locked_table_is_unavailable_never_none(self, name: str) -> None:
        """The error of a lock time-out is the same as that of NOWAIT; only the latter says that the row is held."""
        self.backend.release(self.acquired(name))
        with other_session() as other, other.transaction():
            other.execute("LOCK TABLE aegis_locks_row IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(LockUnavailable) as caught:
                self.backend.acquire(name)
        assert isinstance(caught.value.__cause__, psycopg.errors.QueryCanceled)
        self.acquired(name)

    def test_an_aborted_transaction_is_a_lost_lease(self, name: str) -> None:
        """The server lets go of the row when it aborts the transaction, though the session lives on."""
        for look in (self.backend.verify, self.backend.release):
            lease = self.acquired(name)
            session = session_registry.find(self.backend._key(name, lease.lease_id))
            assert session is not None
            with pytest.raises(psycopg.errors.DivisionByZero):
                session.connection.execute("SELECT 1 / 0")
            other = self.acquired(name)
            assert look(lease) is False
            with pytest.raises(LeaseLost):
                self.backend.renew(lease)
            assert self.backend.release(other) is True

    def test_idle_in_transaction_timeout_ends_only_a_silent_holder(self, name: str) -> None:
        with other_session() as other:
            database = other.info.dbname
            other.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '3s'")
            self.backend.close()  # what is at rest began before
            try:
                with exclusive(name, using=self.alias, ttl=3) as kept:  # renewed each second
                    self.let_pass(4.0)
                    kept.check()
                lease = self.acquired(name, ttl=60)
                self.let_pass(3.5)
                with pytest.raises(LeaseLost):
                    self.backend.renew(lease)
                self.acquired(name)
            finally:
                other.execute(f"ALTER DATABASE {database} RESET idle_in_transaction_session_timeout")
                self.backend.close()

    def test_no_row_is_ever_changed(self, name: str) -> None:
        """Who holds is read from the row's xmax, which must mean a lock and nothing else."""
        place = "SELECT ctid, xmin FROM aegis_locks_row WHERE name = %(name)s"
        self.backend.release(self.acquired(name))
        before = connection.execute(place, {"name": name})
        for _ in range(3):
            self.backend.release(self.acquired(name))
        assert connection.execute(place, {"name": name}) == before


@pytest.mark.django_db(transaction=True)
def test_flush_does_not_wait_for_a_held_row() -> None:
    with exclusive("flushed", using="row_lock") as kept:
        call_command("flush", interactive=False, verbosity=0)
        kept.check()
        assert lock_backends["row_lock"].inspect("flushed") is not None
