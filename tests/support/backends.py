"""Lock backends made elsewhere, and what tests leave in the stores that no transaction takes back."""

from __future__ import annotations

from locks import lock_backends
from locks.backends.database import DatabaseLeaseBackend
from locks.backends.none import NoLockBackend
from locks.base import LeaseInfo


class Quiet(NoLockBackend):
    """Leaves out what it may leave out."""


class Illegible(DatabaseLeaseBackend):
    """Cannot make out one of its leases, and says so in a way that nobody has thought of."""

    def inspect(self, name: str) -> LeaseInfo | None:
        if name == "lock.illegible":
            raise ZeroDivisionError(name)
        return super().inspect(name)


def free_names() -> None:
    """End the leases that an earlier test left in Redis; those in the database went with its tables."""
    for alias in ("redis", "redlock"):
        backend = lock_backends[alias]
        for info in backend.list():
            if info.lease_id is not None:
                backend.force_release(info.name, lease_id=info.lease_id)
