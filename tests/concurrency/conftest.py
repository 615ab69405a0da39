"""Real workers and beats with the demo's schedules, on the test database and brokers."""

from __future__ import annotations

import pytest

from tests.support.quorum import await_votes


@pytest.fixture(autouse=True)
def quorum_votes() -> None:
    await_votes()
