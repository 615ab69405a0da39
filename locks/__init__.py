"""Leases over named resources: one holder at a time, for a limited time, from a store of your choice.

The public API. Nothing else is needed to use locks; ``locks.backends`` is named in settings only.
"""

from __future__ import annotations

from .base import Lease, LeaseInfo
from .exceptions import (
    InvalidLockBackend,
    LeaseLost,
    LockError,
    LockNotAcquired,
    LockUnavailable,
    StaleToken,
)
from .exclusive import exclusive
from .fencing import fence
from .findings import Finding, Level
from .handler import lock_backends

__all__ = [
    "Finding",
    "InvalidLockBackend",
    "Lease",
    "LeaseInfo",
    "LeaseLost",
    "Level",
    "LockError",
    "LockNotAcquired",
    "LockUnavailable",
    "StaleToken",
    "exclusive",
    "fence",
    "lock_backends",
]
