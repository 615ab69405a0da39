"""Tests that name the redlock strategy start when its nodes vote."""

from __future__ import annotations

import pytest

from tests.support.quorum import await_votes


@pytest.fixture(autouse=True)
def quorum_votes(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "redlock" in callspec.params.values():
        await_votes()
