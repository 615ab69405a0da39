"""What the backends that keep a row in PostgreSQL have to keep beyond the contract."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connections

from locks import LeaseLost, LockUnavailable, connection, lock_backends
from locks.testing import LockBackendContract, Outage, wait_until
from tests.contract.wires import wired_database, wired_row_backend

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'aegis' AND wait_event_type = 'Lock'
"""


class RowBackendContract(LockBackendContract):
    """Subclasses name their table and the column that holds the end."""

    table: str
    end: str

    def expire(self, name: str) -> None:
        connection.execute(
            f"UPDATE {self.table} SET {self.end} = clock_timestamp() - interval '1 ms' WHERE name = %(name)s",
            {"name": name},
        )

    @contextmanager
    def store_down(self) -> Iterator[Outage]:
        with wired_database() as proxy:
            backend = wired_row_backend(self.alias)
            backend.inspect("warm-up")
            proxy.cut()
            yield Outage(backend, proxy.heal)

    def test_end_is_counted_from_after_the_wait_for_a_row_lock(self, name: str) -> None:
        """With ``now()`` the end would be counted from when the statement began, before it waited."""
        self.backend.release(self.acquired(name))
        with self.row_locked(name) as holder, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(lambda: lock_backends[self.alias].acquire(name))
            wait_until(self.somebody_waits, what="the acquire waits for the row")
            stamp = holder.execute("SELECT clock_timestamp()").fetchone()
            holder.commit()
            assert asked.result() is not None
        assert stamp is not None
        late_enough = connection.execute(
            f"SELECT {self.end} >= %(stamp)s + make_interval(secs => %(ttl)s) FROM {self.table}"
            " WHERE name = %(name)s",
            {"name": name, "stamp": stamp[0], "ttl": self.backend.ttl},
        )
        assert late_enough == [(True,)]

    def test_a_release_that_waited_leaves_who_came_meanwhile_alone(self, name: str) -> None:
        """It was the holder when it asked, and is not when it gets the row."""
        lease, successor = self.acquired(name), uuid.uuid4()
        with self.row_locked(name) as holder, ThreadPoolExecutor(1) as pool:
            released = pool.submit(lambda: lock_backends[self.alias].release(lease))
            wait_until(self.somebody_waits, what="the release waits for the row")
            self.hand_over(holder, name, successor)
            assert released.result() is False
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.lease_id == successor

    def test_a_renewal_that_waited_prolongs_nobody_elses_lease(self, name: str) -> None:
        lease, successor = self.acquired(name), uuid.uuid4()
        with self.row_locked(name) as holder, ThreadPoolExecutor(1) as pool:
            renewed = pool.submit(lambda: lock_backends[self.alias].renew(lease, ttl=600))
            wait_until(lambda: self.somebody_waits() or renewed.done(), what="the renewal waits for the row")
            self.hand_over(holder, name, successor)
            assert self.backend.renewable is isinstance(renewed.exception(), LeaseLost)
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.lease_id == successor
        assert shown.expires_in is not None and shown.expires_in <= 60

    def test_a_locked_row_is_unavailable_never_none(self, name: str) -> None:
        self.backend.release(self.acquired(name))
        with self.row_locked(name), pytest.raises(LockUnavailable) as caught:
            self.backend.acquire(name)
        assert isinstance(caught.value.__cause__, psycopg.errors.LockNotAvailable)

    def test_a_name_without_a_row_is_seeded_never_busy(self, name: str) -> None:
        rows = f"SELECT count(*) FROM {self.table} WHERE name = %(name)s"
        assert connection.execute(rows, {"name": name}) == [(0,)]
        self.acquired(name)
        assert connection.execute(rows, {"name": name}) == [(1,)]

    def test_release_keeps_the_row_and_its_number(self, name: str) -> None:
        lease = self.acquired(name)
        self.backend.release(lease)
        assert (self.acquired(name).grant_no or 0) > (lease.grant_no or 0)

    def test_key_prefixes_share_a_table_and_nothing_else(self, name: str) -> None:
        backend = type(self.backend)(self.alias, {**self.backend.params, "KEY_PREFIX": "other"})
        self.acquired(name)
        lease = self.acquired(name, backend)
        shown = backend.inspect(name)
        assert shown is not None
        assert (shown.name, shown.lease_id) == (name, lease.lease_id)
        assert [info.name for info in backend.list(name)] == [name]
        assert backend.release(lease) is True

    def test_swallowed_answer_is_unavailable_and_the_same_id_gets_the_grant(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The grant is made and its answer lost: asking again with the same id tells what was granted."""
        with wired_database() as proxy:
            backend = wired_row_backend(self.alias)
            self.acquired(f"{name}.warm-up", backend)
            lease_id = uuid.uuid4()
            self.backend.release(self.acquired(name))
            proxy.swallow_answers()
            with monkeypatch.context() as patched:
                patched.setattr(connection, "ANSWER_TIMEOUT", 0.3)
                with pytest.raises(LockUnavailable) as caught:
                    backend.acquire(name, lease_id=lease_id)
            assert isinstance(caught.value.__cause__, connection.NoAnswer)
            granted = wait_until(lambda: self.backend.inspect(name), what="the grant nobody heard of")
            assert granted.lease_id == lease_id
            proxy.heal()
            again = backend.acquire(name, lease_id=lease_id)
            assert again is not None
            assert again.grant_no == granted.grant_no

    def hand_over(self, holder: psycopg.Connection, name: str, successor: uuid.UUID) -> None:
        """The session that has the row gives it to another lease, for a minute."""
        holder.execute(
            f"UPDATE {self.table} SET lease_id = %s, {self.end} = clock_timestamp() + interval '1 min'"
            " WHERE name = %s",
            [successor, name],
        )
        holder.commit()

    def somebody_waits(self) -> bool:
        return connection.execute(WAITING) != [(0,)]

    @contextmanager
    def row_locked(self, name: str) -> Iterator[psycopg.Connection]:
        """Another session has changed the row of ``name`` and not committed."""
        params = connections["default"].get_connection_params()
        params.pop("cursor_factory")
        with psycopg.connect(**params) as holder:
            # An update and no bare FOR UPDATE: after waiting for a row that was not changed, PostgreSQL goes
            # on with the values it had computed before.
            holder.execute(f"UPDATE {self.table} SET holder = 'busy' WHERE name = %s", [name])
            yield holder
            holder.rollback()
