from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from locks.testing import LockBackendContract, Outage


@pytest.mark.django_db
class TestNone(LockBackendContract):
    """Runs all but exclusion."""

    alias = "none"

    def expire(self, name: str) -> None:
        """Nothing is kept, so nothing expires."""

    def store_down(self) -> AbstractContextManager[Outage]:
        return nullcontext(Outage(self.backend, lambda: None))
