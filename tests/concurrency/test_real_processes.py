"""Beats and workers as processes: what a team runs, and what happens when one is killed."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from django.db.models import Count, F, Max

from aegis_site.celery import app
from aegis_site.demo.models import Effect
from scheduler.models import Execution, Instance, Schedule, Tick
from scheduler.models.tick import Delivery
from scheduler.states import ExecutionState, TickState
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

GUARDED = ["database", "optimistic", "advisory", "row_lock", "redis", "redlock"]
TAKEOVER = {"advisory": 5.0, "row_lock": 5.0}  # seconds; the lock of a session is free at once, not after a TTL
SETTLE = "aegis_site.demo.tasks.settle_invoices"
DIGEST = "aegis_site.demo.tasks.send_digest"
UNREAD = "aegis-test-unread"  # a queue that no worker takes from unless a test says so


def executed(name: str) -> int:
    return Execution.objects.filter(tick__schedule_name=name, state=ExecutionState.EXECUTED).count()


def test_a_broadcast_from_a_real_beat_reaches_every_worker_and_one_runs_it(
    celery_processes: CeleryProcesses,
) -> None:
    make_schedule("digest", every_seconds=1, task=DIGEST, delivery=Delivery.EVERY_WORKER)
    for _ in range(3):
        celery_processes.worker()
    celery_processes.beat()

    def all_heard() -> bool:
        per_tick = Execution.objects.values("tick").annotate(heard=Count("worker", distinct=True))
        return per_tick.filter(heard=3).count() >= 3

    wait_until(all_heard, timeout=40, message="three ticks were heard of by all three workers")
    per_tick = Execution.objects.filter(began=True).values("tick").annotate(bodies=Count("id"))
    assert set(per_tick.values_list("bodies", flat=True)) == {1}
    subjects = list(Effect.objects.values_list("subject", flat=True))
    assert len(subjects) == len(set(subjects))


def test_the_baseline_doubles_its_effects_on_real_workers(celery_processes: CeleryProcesses) -> None:
    make_schedule(
        "baseline", alias="none", every_seconds=1, task=SETTLE, kwargs={"seconds": 0.2}, once_per_tick=False,
        delivery=Delivery.EVERY_WORKER,
    )  # fmt: skip
    for _ in range(2):
        celery_processes.worker()
    celery_processes.beat()

    def doubled() -> bool:
        return Effect.objects.values("subject").annotate(times=Count("id")).filter(times=2).exists()

    wait_until(doubled, timeout=40, message="an invoice was settled twice")


def test_two_beats_share_the_catalog_without_doubling_a_tick(celery_processes: CeleryProcesses) -> None:
    for number in range(10):
        make_schedule(f"digest-{number}", every_seconds=1, task=DIGEST)
    celery_processes.worker(concurrency=2)
    celery_processes.beat()
    celery_processes.beat()
    wait_until(lambda: Execution.objects.filter(began=True).count() >= 60, timeout=60, message="60 bodies ran")
    wait_until(lambda: Instance.objects.filter(kind="beat").count() == 2, timeout=60, message="both beats are there")
    doubled = Execution.objects.filter(began=True).values("tick").annotate(bodies=Count("id")).filter(bodies__gt=1)
    assert not doubled.exists()
    assert not Execution.objects.filter(state=ExecutionState.DUPLICATE).exists()
    for name in Schedule.objects.values_list("name", flat=True):
        rows = Tick.objects.filter(schedule_name=name).order_by("fire_time").values_list("fire_time", "through")
        # One row may stand for a stretch of them, where the machine came too late to start each.
        ends = [(first, through or first) for first, through in rows]
        assert all((b[0] - a[1]).total_seconds() == 1 for a, b in pairwise(ends))


def child_of(parent_pid: int) -> psutil.Process:
    """The pool process that runs the body."""
    running = Execution.objects.get(state=ExecutionState.RUNNING)
    assert running.pid is not None
    process = psutil.Process(running.pid)
    assert process.ppid() == parent_pid
    return process


@pytest.mark.parametrize("alias", GUARDED)
def test_after_kill_9_of_a_worker_the_next_execution_starts_within_ten_seconds(
    alias: str, celery_processes: CeleryProcesses
) -> None:
    """The bound is a promise (TTL 6 s + 4 s, or 1 s + 4 s), measured by the database's stamps.

    To it comes the machine's own lateness meanwhile: that of a schedule of every second which nothing holds up.
    """
    make_schedule("victim", alias=alias, every_seconds=2, task=SETTLE, kwargs={"seconds": 120.0})
    make_schedule("control", every_seconds=1, task=DIGEST)
    first = celery_processes.worker(concurrency=2)
    celery_processes.beat()
    of_victim = Execution.objects.filter(tick__schedule_name="victim")
    victim = wait_until(of_victim.filter(state=ExecutionState.RUNNING).first, timeout=40, message="a body is inside")
    second = celery_processes.worker(concurrency=2)
    first.signal_group(signal.SIGKILL)
    wait_until(lambda: not first.running, message="the worker is gone")
    killed_at = database_now()

    successor = wait_until(
        lambda: of_victim.filter(began=True, started_at__gt=killed_at).order_by("started_at").first(),
        timeout=40,
        message="another execution of the schedule started",
    )
    assert (successor.started_at - killed_at).total_seconds() <= TAKEOVER.get(alias, 10.0) + lateness_since(killed_at)
    abandoned = wait_until(
        lambda: Execution.objects.filter(pk=victim.pk, state=ExecutionState.ABANDONED).first(),
        timeout=40,
        message="the killed execution was abandoned",
    )
    assert "no heartbeat" in abandoned.reason and "the lease is gone" in abandoned.reason
    second.kill()  # nobody waits for its body


def lateness_since(at: datetime) -> float:
    """How late the control schedule's ticks of since then were started, at most; seconds."""
    since = Execution.objects.filter(tick__schedule_name="control", tick__fire_time__gte=at, began=True)
    wait_until(since.exists, timeout=60, message="the control schedule was started")
    late = since.aggregate(most=Max(F("started_at") - F("tick__fire_time")))
    return float(late["most"].total_seconds())


def test_a_beat_killed_between_commit_and_publish_loses_no_tick(
    celery_processes: CeleryProcesses, tmp_path: Path
) -> None:
    points = tmp_path / "failpoints"
    points.mkdir()
    (points / "after-mint").write_text("kill")
    make_schedule("digest", every_seconds=5, task=DIGEST)  # apart, so that none is in the way of another
    past = database_now() - timedelta(seconds=1)  # due in the first pass, which is the one that is killed
    Schedule.objects.update(next_fire_at=past, activated_at=past - timedelta(hours=1))
    celery_processes.worker()
    doomed = celery_processes.beat(env={"AEGIS_FAILPOINTS": str(points)})
    wait_until(lambda: not doomed.running, timeout=30, message="the beat was killed after its commit")
    # Not those that the beat, slow to start, has stored as missed.
    stored = list(Tick.objects.filter(state=TickState.PLANNED).values_list("pk", flat=True))
    assert stored and not Execution.objects.exists()
    celery_processes.beat()
    wait_until(
        lambda: Execution.objects.filter(tick__in=stored, state=ExecutionState.EXECUTED).count() == len(stored),
        timeout=90,
        message="the stored ticks ran",
    )


def test_a_beat_killed_right_after_its_publish_is_followed_by_a_copy_that_is_refused(
    celery_processes: CeleryProcesses, tmp_path: Path
) -> None:
    """The other beat is there all along, and paused until then: else it might be the one that publishes first."""
    points = tmp_path / "failpoints"
    points.mkdir()
    (points / "after-publish").write_text("kill")
    standby = celery_processes.beat(name="standby")
    standby.pause()
    make_schedule("digest", every_seconds=3600, task=DIGEST, queue=UNREAD, misfire_grace=600)
    past = database_now() - timedelta(seconds=1)
    Schedule.objects.update(next_fire_at=past, activated_at=past - timedelta(minutes=30))
    doomed = celery_processes.beat(name="doomed", env={"AEGIS_FAILPOINTS": str(points)})
    wait_until(lambda: not doomed.running, timeout=30, message="the beat was killed after its publish")
    (tick,) = Tick.objects.filter(state=TickState.PLANNED)
    assert waiting_in(UNREAD) == 1 and tick.dispatched_at is None, "sent, and not marked as sent"

    standby.resume()
    wait_until(lambda: waiting_in(UNREAD) == 2, timeout=60, message="the other beat has sent a copy")
    celery_processes.worker("-Q", UNREAD)
    heard = Execution.objects.filter(tick=tick).order_by("pk")
    wait_until(lambda: heard.filter(state=ExecutionState.DUPLICATE).exists(), timeout=40, message="one was refused")
    assert list(heard.values_list("state", flat=True)) == [ExecutionState.EXECUTED, ExecutionState.DUPLICATE]
    assert Tick.objects.get(pk=tick.pk).outcome == "executed" and Effect.objects.count() == 1


def waiting_in(queue: str) -> int:
    """Messages that no worker has taken."""
    with app.connection_for_write() as broker:
        return int(broker.default_channel.client.llen(queue))


def test_a_worker_that_starts_before_the_tick_is_marked_dispatched_runs_it(
    celery_processes: CeleryProcesses, tmp_path: Path
) -> None:
    points = tmp_path / "failpoints"
    points.mkdir()
    hold = points / "after-publish"
    hold.touch()
    make_schedule("digest", every_seconds=2, task=DIGEST)
    celery_processes.worker()
    celery_processes.beat(env={"AEGIS_FAILPOINTS": str(points)})
    first = wait_until(
        lambda: Execution.objects.filter(state=ExecutionState.EXECUTED).first(),
        timeout=40,
        message="the tick ran",
    )
    assert list(points.glob("after-publish.reached.*"))
    hold.unlink()
    wait_until(lambda: executed("digest") >= 2, timeout=40, message="the beat went on")
    tick = Tick.objects.get(pk=first.tick_id)
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "executed")
