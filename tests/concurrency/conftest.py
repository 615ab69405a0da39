"""Real workers and beats with the demo's schedules, on the test database and brokers."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.backends import free_names
from tests.support.quorum import await_votes


@pytest.fixture(autouse=True)
def quorum_votes() -> None:
    await_votes()
    free_names()


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """What a test has left open is an error of that test, not of the one during which it is collected."""
    yield
    gc.collect()
