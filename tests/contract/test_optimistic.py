from __future__ import annotations

import math

import pytest

from locks import LeaseLost, connection, exclusive, lock_backends
from tests.contract.rows import RowBackendContract


@pytest.mark.django_db
class TestOptimistic(RowBackendContract):
    alias = "optimistic"
    table = "aegis_locks_claim"
    end = "closes_at"

    def test_outlived_window_that_nobody_used_is_not_lost(self, name: str) -> None:
        lease = self.acquired(name)
        self.expire(name)
        assert self.backend.verify(lease) is True
        assert self.backend.renew(lease).grant_no == lease.grant_no
        assert self.backend.release(lease) is True

    def test_outlived_window_that_somebody_used_is_lost(self, name: str) -> None:
        lease = self.acquired(name)
        self.expire(name)
        other = self.acquired(name)
        self.backend.release(other)
        assert self.backend.verify(lease) is False
        assert self.backend.release(lease) is False

    def test_same_id_does_not_move_the_window(self, name: str) -> None:
        lease = self.acquired(name, ttl=5)
        assert self.backend.acquire(name, ttl=500, lease_id=lease.lease_id) is not None
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.expires_in is not None
        assert shown.expires_in <= 5

    def test_renewal_does_not_move_the_window(self, name: str) -> None:
        lease = self.acquired(name, ttl=5)
        assert self.backend.renew(lease, ttl=500).trusted_until == math.inf
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.expires_in is not None
        assert shown.expires_in <= 5

    def test_exclusive_verifies_before_it_ends_well(self, name: str) -> None:
        def lose_the_race() -> None:
            with exclusive(name, using=self.alias):
                self.expire(name)
                lock_backends[self.alias].release(self.acquired(name))

        with pytest.raises(LeaseLost, match="not ours any more at its end"):
            lose_the_race()

    def test_claim_is_cleared_by_its_release(self, name: str) -> None:
        self.backend.release(self.acquired(name))
        rows = connection.execute(
            "SELECT lease_id, closes_at = 'epoch' FROM aegis_locks_claim WHERE name = %(name)s",
            {"name": name},
        )
        assert rows == [(None, True)]
