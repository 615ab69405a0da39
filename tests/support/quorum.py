"""Nodes of a fresh quorum sit out a quarantine before they vote; tests wait for its end."""

from __future__ import annotations

from uuid import uuid4

from locks import LockUnavailable, lock_backends
from tests.support.waiting import wait_until


def await_votes(alias: str = "redlock") -> None:
    """Return when a majority of the nodes votes."""
    backend = lock_backends[alias]

    def granted() -> bool:
        lease_id = uuid4()
        try:
            lease = backend.acquire(f"probe.{lease_id}", lease_id=lease_id)
        except LockUnavailable:
            backend.withdraw(f"probe.{lease_id}", lease_id=lease_id)
            return False
        return lease is not None and backend.release(lease)

    wait_until(granted, timeout=30, message="a majority of the quorum's nodes votes")
