"""Grant numbers and fencing tokens never repeat and never go back, whatever happens to rows and servers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest
from django.db import connections

from aegis_site.embedded import Services
from locks import connection, exclusive, fence, fencing, lock_backends
from locks.backends.base import BaseLockBackend
from scheduler.models import Schedule
from scheduler.runner import run
from scheduler.states import ExecutionState
from tests.support import wait_until
from tests.support.cluster import ALIAS, Cluster
from tests.support.engine import delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

# Strategies whose grants are numbered by a row of the database, with the table.
ROWS = {"database": "aegis_locks_lease", "optimistic": "aegis_locks_claim"}
# And by the sequence alone, which is not written to disk for each.
NUMBERING = [*ROWS, "advisory"]


@pytest.fixture
def name() -> str:
    return f"tokens.{uuid.uuid4().hex}"


def granted(backend: BaseLockBackend, name: str) -> int:
    """The number of one grant, given back."""
    lease = wait_until(lambda: backend.acquire(name), timeout=20, message="the name is free")
    assert lease is not None and lease.grant_no is not None
    backend.release(lease)
    return lease.grant_no


def started(schedule: Schedule) -> int:
    """The fencing token of one run."""
    outcome = run(delivery_of(make_tick(schedule)), lambda context: context.fencing_token)
    assert outcome.state is ExecutionState.EXECUTED and outcome.execution.token is not None
    return outcome.execution.token


@pytest.mark.parametrize("alias", ROWS)
def test_grant_numbers_across_release_expiry_and_deletion_of_the_row(alias: str, name: str) -> None:
    backend = lock_backends[alias]
    numbers = [granted(backend, name), granted(backend, name)]
    expired = backend.acquire(name, ttl=1.0)
    assert expired is not None and expired.grant_no is not None
    numbers += [expired.grant_no, granted(backend, name)]
    connection.execute(f"DELETE FROM {ROWS[alias]} WHERE name = %(name)s", {"name": name})
    numbers.append(granted(backend, name))
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("alias", ROWS)
def test_a_number_never_goes_below_its_row(alias: str, name: str) -> None:
    """A copy of the data in a fresh cluster begins with the first timeline, and with a sequence of its own."""
    backend = lock_backends[alias]
    granted(backend, name)
    column = "token" if alias == "database" else "version"
    connection.execute(f"UPDATE {ROWS[alias]} SET {column} = {2**45} WHERE name = %(name)s", {"name": name})
    assert granted(backend, name) == 2**45 + 1


def test_tokens_of_runs_across_deletion_of_the_fence_row() -> None:
    schedule = make_schedule()
    tokens = [started(schedule), started(schedule)]
    connection.execute("DELETE FROM aegis_locks_fence WHERE name = %(name)s", {"name": schedule.lock_id})
    fencing.seed(schedule.lock_id)
    tokens.append(started(schedule))
    connection.execute(
        f"UPDATE aegis_locks_fence SET token = {2**45} WHERE name = %(name)s", {"name": schedule.lock_id}
    )
    tokens.append(started(schedule))
    assert tokens == sorted(set(tokens))


@pytest.mark.faults
@pytest.mark.parametrize("alias", ["database", "advisory"])
def test_numbers_and_tokens_across_kill_9_of_the_server(alias: str, services: Services, name: str) -> None:
    """Many grants are under way when it dies; none of the answered ones is given out again.

    What a number needs that was written down by another's grant is tried in ``test_advisory``: here it is rare.
    """
    schedule = make_schedule()
    answered: list[list[int]] = [[], [], []]

    def grant_on(mine: list[int]) -> None:
        backend = lock_backends[alias]
        try:
            while True:
                mine.append(granted(backend, f"{name}.{id(mine)}"))
        except Exception:  # the server is gone
            connection.close_all()

    token = started(schedule)
    threads = [threading.Thread(target=grant_on, args=(mine,)) for mine in answered]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(mine) > 50 for mine in answered), message="grants are under way")
    services.postgres.kill()
    for thread in threads:
        thread.join(timeout=60)
    services.postgres.start()
    connections.close_all()
    assert granted(lock_backends[alias], name) > max(max(mine) for mine in answered)
    assert started(schedule) > token
    assert all(mine == sorted(set(mine)) for mine in answered)


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.embedded
def test_numbers_and_tokens_across_a_failover_that_lost_the_last_ones(
    own_cluster: Cluster, name: str, settings: object
) -> None:
    """A real standby that never heard of the primary's last 200 numbers is promoted.

    The sequence itself goes back, which is shown as well: without the timeline the numbers would repeat.
    """
    settings.LOCKS = {  # type: ignore[attr-defined]
        alias: {"BACKEND": lock_backends[alias].__class__.__module__ + "." + lock_backends[alias].__class__.__name__,
                "LOCATION": ALIAS, "TTL": 30}
        for alias in NUMBERING
    }  # fmt: skip
    backends: list[Callable[[], int]] = [
        lambda alias=alias: granted(lock_backends[alias], name) for alias in NUMBERING
    ]

    def token() -> int:
        with exclusive(name, using="database") as held, fence(held, using=ALIAS) as raised:
            return raised

    counters = [*backends, token]
    for counter in counters:
        counter()
    own_cluster.add_standby()
    lost = [[counter() for _ in range(70)] for counter in counters]
    own_cluster.failover()
    sequence = connection.execute("SELECT last_value FROM aegis_locks_token", using=ALIAS)[0][0]
    assert sequence < max(lost[-1]), "the standby knew the last numbers: nothing was lost, and nothing is shown"
    for counter, numbers in zip(counters, lost, strict=True):
        assert numbers == sorted(set(numbers))
        assert counter() > max(numbers)
