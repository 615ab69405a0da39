"""``none``: excludes nothing. The baseline that collisions are measured against."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from ..base import Lease, LeaseInfo, LeaseInfos
from .base import BaseLockBackend, Grant
from .params import ParamsValidator


class NoLockParams(ParamsValidator):
    def check_backend(self) -> None:
        self.refuse_location()


class NoLockBackend(BaseLockBackend):
    """Says yes to everybody and keeps nothing: two holders of one name are never kept apart.

    It has the shape of the others, so that taking a lock away is a change of one setting and not of code.
    """

    exclusive: ClassVar[bool] = False
    renewable: ClassVar[bool] = False  # there is nothing to prolong
    store_clock: ClassVar[bool] = False
    survives_store_restart: ClassVar[bool] = True  # there is no store
    bounded_takeover: ClassVar[bool] = False  # there is nothing to take over
    trust_window: ClassVar[bool] = False
    minimum_ttl: ClassVar[float] = 0.001
    params_validator: ClassVar[type[ParamsValidator]] = NoLockParams

    def inspect(self, name: str) -> LeaseInfo | None:
        return None

    def list(self, prefix: str = "") -> LeaseInfos:
        return []

    def _acquire(self, name: str, ttl: float, lease_id: UUID, holder: str) -> Grant | None:
        return Grant()

    def _renew(self, lease: Lease, ttl: float) -> bool:
        return True

    def _release(self, name: str, lease_id: UUID, grant_no: int | None) -> bool:
        return True
