from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from locks import LeaseLost, connection, lock_backends
from locks.testing import FrozenClock, wait_until
from tests.contract.rows import RowBackendContract


@pytest.mark.django_db
class TestDatabase(RowBackendContract):
    alias = "database"
    table = "aegis_locks_lease"
    end = "expires_at"

    def test_renewal_that_waited_beyond_the_end_revives_nothing(self, name: str) -> None:
        """The lease ends while its renewal waits for the row; ``now()`` would still see it alive."""
        backend = self.make_backend()
        lease = self.acquired(name, backend)
        backend.clock = FrozenClock()  # so that only the store decides
        with self.row_locked(name) as holder, ThreadPoolExecutor(1) as pool:
            renewed = pool.submit(backend.renew, lease)
            wait_until(self.somebody_waits, what="the renewal waits for the row")
            holder.execute("UPDATE aegis_locks_lease SET expires_at = clock_timestamp() WHERE name = %s", [name])
            holder.commit()
            with pytest.raises(LeaseLost):
                renewed.result()
        assert self.backend.inspect(name) is None

    def test_lock_delay_keeps_an_expired_name_closed_and_a_released_one_open(self, name: str) -> None:
        params = {**self.backend.params, "OPTIONS": {"LOCK_DELAY": 60}}
        backend = type(self.backend)(self.alias, params)
        assert backend.takeover_bound == backend.ttl + 60
        backend.release(self.acquired(name, backend))
        self.acquired(name, backend)
        self.expire(name)
        assert backend.acquire(name) is None
        assert self.backend.acquire(name) is not None

    def test_same_id_moves_the_end_and_never_back(self, name: str) -> None:
        lease = self.acquired(name, ttl=60)
        assert self.backend.acquire(name, ttl=5, lease_id=lease.lease_id) is not None
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.expires_in is not None
        assert shown.expires_in > 5

    def test_two_sessions_may_seed_a_name_at_once(self, name: str) -> None:
        with ThreadPoolExecutor(8) as pool:
            names = [f"{name}.{n}" for n in range(10)]
            answers = list(pool.map(lambda one: lock_backends[self.alias].acquire(one), names * 2))
        assert sum(answer is not None for answer in answers) == len(names)

    def test_bad_rows_are_refused_by_the_table(self, name: str) -> None:
        bad_name = "INSERT INTO aegis_locks_lease (name) VALUES ('Bad Name')"
        free_with_an_end = f"INSERT INTO aegis_locks_lease (name, expires_at) VALUES ('{name}', now())"
        for bad in (bad_name, free_with_an_end):
            with pytest.raises(connection.psycopg.errors.CheckViolation):
                connection.execute(bad)
