"""Every strategy against a world that loses, delays and freezes: random walks, shrunk to the shortest story."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from locks.testing import admit_nodes
from tests.contract.machine import Leases
from tests.contract.test_advisory import TestAdvisory as Advisory
from tests.contract.test_database import TestDatabase as Database
from tests.contract.test_optimistic import TestOptimistic as Optimistic
from tests.contract.test_redis import TestRedis as Redis
from tests.contract.test_redlock import TestRedlock as Redlock
from tests.contract.test_row_lock import TestRowLock as RowLock

WALKS = int(os.environ.get("AEGIS_WALKS", "25"))  # of each strategy; a thorough run has thousands
STEPS = 40
CHOSEN = "AEGIS_WALKS" not in os.environ  # the same walks each time, so that a change alone turns a test red

KINDS = {kind.alias: kind for kind in (Advisory, Database, Optimistic, Redis, Redlock, RowLock)}


@pytest.mark.django_db
@pytest.mark.parametrize("alias", sorted(KINDS))
def test_no_walk_breaks_the_contract(alias: str) -> None:
    contract = KINDS[alias]()

    class Walk(Leases):
        expire = contract.expire

    Walk.alias = alias
    if alias == "redlock":
        admit_nodes(Redlock().backend)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Walk,
        settings=settings(
            max_examples=WALKS, stateful_step_count=STEPS, derandomize=CHOSEN,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
