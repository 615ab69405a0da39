"""A pool process that dies before a run has begun, or after it has ended: with the lease, and with no body inside."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from aegis_site.demo.models import Effect
from locks import lock_backends
from scheduler.models import Execution, Tick
from scheduler.publisher import publish
from scheduler.states import ExecutionState, TickState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import bodies, closed, execution_of, seen
from tests.support.engine import database_now, make_schedule, make_tick

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

TTL = 20.0  # seconds; long enough for another process of the pool to be refused meanwhile


@pytest.fixture
def points(tmp_path: Path) -> Path:
    folder = tmp_path / "failpoints"
    folder.mkdir()
    return folder


def die_at(place: str, tick: Tick, points: Path, processes: CeleryProcesses) -> datetime:
    """A worker's only child takes the tick, and is killed there; another one takes its place. When its lease ends."""
    (points / place).write_text("kill")
    processes.worker(env={"AEGIS_FAILPOINTS": str(points)})
    assert publish([tick]).ids == [tick.id]
    wait_until(lambda: list(points.glob(f"{place}.reached.*")), timeout=40, message="the child was killed")
    (points / place).unlink()
    left = lock_backends["database"].inspect(tick.lock_name)
    assert left is not None and left.expires_in is not None, "its lease stands"
    return database_now() + timedelta(seconds=left.expires_in)


def ran_late(tick: Tick, lease_over: datetime, processes: CeleryProcesses) -> None:
    """Beats send it until it runs, which it does once the lease of the dead has ended, at its first attempt."""
    processes.beat()
    assert closed(tick, timeout=TTL + 60).outcome == "executed"
    ran = execution_of(tick, ExecutionState.EXECUTED)
    assert (ran.attempt, bodies(tick)) == (1, 1), seen(tick)
    assert ran.started_at is not None and lease_over - timedelta(seconds=1) <= ran.started_at


def test_a_child_killed_between_its_grant_and_its_start_spends_no_attempt(
    celery_processes: CeleryProcesses, points: Path
) -> None:
    tick = make_tick(make_schedule(ttl=TTL, misfire_grace=600), dispatch_at=database_now())
    lease_over = die_at("after-acquire", tick, points, celery_processes)
    assert not Execution.objects.exists()
    ran_late(tick, lease_over, celery_processes)
    assert set(Execution.objects.exclude(began=True).values_list("state", flat=True)) <= {ExecutionState.PREVENTED}
    assert Effect.objects.count() == 1


def test_a_child_killed_after_its_end_was_stored_leaves_a_lease_that_the_next_tick_waits_for(
    celery_processes: CeleryProcesses, points: Path
) -> None:
    schedule = make_schedule(ttl=TTL, misfire_grace=600)
    first, following = make_tick(schedule, seconds_ago=5), make_tick(schedule)
    lease_over = die_at("before-release", first, points, celery_processes)
    ended = execution_of(first, ExecutionState.EXECUTED)
    assert publish([following]).ids == [following.id]
    refused = execution_of(following, ExecutionState.PREVENTED)
    following.refresh_from_db()
    assert refused.holder_id is None and following.state == TickState.PLANNED, "no evidence, so it stays open"
    ran_late(following, lease_over, celery_processes)
    ended.refresh_from_db()
    assert (ended.state, ended.returned_as) == (ExecutionState.EXECUTED, "")
    assert closed(first).outcome == "executed" and Effect.objects.count() == 2
