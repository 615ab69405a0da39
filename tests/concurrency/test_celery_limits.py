"""Celery's time limits, wherever in a run they strike."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from aegis_site.celery import app
from aegis_site.demo.models import Effect
from aegis_site.embedded import ChildProcess
from locks import lock_backends
from scheduler.delivery import task_id_of
from scheduler.models import Execution, Tick
from scheduler.publisher import publish
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import LONG, WORKER, bodies, closed, execution_of, inside, let_out, send, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

# Where the run is held when the limit strikes -> how the body ends, and what it has seen.
PLACES = {
    "after-acquire": ("failed", []),
    "after-start": ("failed", []),
    "after-body": ("executed", ["began"]),
    "before-release": ("executed", ["began"]),
}


def effects(tick: Tick) -> list[str]:
    of_tick = Effect.objects.filter(schedule=tick.schedule_name).order_by("id")
    return list(of_tick.values_list("subject", flat=True))


def is_free(name: str) -> bool:
    return lock_backends["database"].inspect(name) is None


def said(worker: ChildProcess, text: str) -> int:
    return worker.log.read_text(errors="replace").count(text)


def test_the_soft_limit_strikes_in_the_body_and_nowhere_else(
    celery_processes: CeleryProcesses, tmp_path: Path
) -> None:
    points = tmp_path / "failpoints"
    points.mkdir()
    worker = celery_processes.worker(*WORKER, env={"AEGIS_FAILPOINTS": str(points)})
    for struck, (place, (state, expected)) in enumerate(PLACES.items(), start=1):
        hold = points / place
        hold.touch()
        tick = send("soft", kwargs={"how": "short"}, ttl=12.0)  # nothing renews it where it is held
        wait_until(
            lambda n=struck: said(worker, "Soft time limit (3s) exceeded") >= n,
            timeout=30,
            message=f"the limit struck {place}",
        )
        hold.unlink()
        assert closed(tick).outcome == state, place
        assert effects(tick) == expected and bodies(tick) == 1, place
        execution = Execution.objects.get(tick=tick)
        assert ("SoftTimeLimitExceeded" in execution.error) is (state == "failed")
        wait_until(
            lambda name=tick.lock_name: is_free(name), message="the child is out, and not held at the next place"
        )
    wait_until(lambda: said(worker, "came when the body had ended") == 2, message="both that came late were told")

    caught = send("soft", kwargs={"how": "caught"}, ttl=12.0)
    assert closed(caught).outcome == "executed" and effects(caught) == ["began", "soft limit"]
    through = send("soft", kwargs={"how": "through"}, ttl=12.0)
    assert closed(through).outcome == "failed" and effects(through) == ["began", "soft limit"]
    guarded = send("soft", kwargs={"how": "in a guard"}, ttl=12.0)  # which may be idle for most of it
    assert closed(guarded).outcome == "failed" and effects(guarded) == ["began", "guarded", "soft limit"]
    assert len(set(Execution.objects.values_list("pid", flat=True))) == 1  # one child saw them all


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_hard_limit_spends_the_attempt(attempts: int, celery_processes: CeleryProcesses) -> None:
    """Whether the child or the reaper records it, another attempt is what the schedule allows."""
    worker = celery_processes.worker(*WORKER)
    celery_processes.beat()
    tick = send("hard", max_attempts=attempts)
    cut = execution_of(tick, ExecutionState.FAILED, ExecutionState.ABANDONED)
    assert said(worker, "Hard time limit (4s) exceeded") == 1
    assert cut.state == "abandoned" or "told to end" in cut.reason
    assert closed(tick).outcome == (cut.state if attempts == 1 else "executed") and bodies(tick) == attempts


def test_a_child_that_has_to_end_first_stores_how_its_body_ended(
    celery_processes: CeleryProcesses, tmp_path: Path
) -> None:
    """SIGTERM while the end is being stored: with more attempts allowed, what is done must not be done again."""
    points = tmp_path / "failpoints"
    points.mkdir()
    hold = points / "after-body"
    hold.touch()
    worker = celery_processes.worker(*WORKER, env={"AEGIS_FAILPOINTS": str(points)})
    celery_processes.beat()
    tick = send("first_long", kwargs={"seconds": 0.0}, max_attempts=3)
    wait_until(lambda: list(points.glob("after-body.reached.*")), timeout=30, message="the body has ended")
    running = Execution.objects.get(tick=tick)
    assert running.pid is not None
    os.kill(running.pid, signal.SIGTERM)
    hold.unlink()
    assert closed(tick).outcome == "executed" and states(tick) == ["executed"]
    wait_until(lambda: not Path(f"/proc/{running.pid}").exists(), timeout=20, message="the child has ended after it")
    assert worker.running


def test_revoked_with_terminate_is_failed_and_never_tried_again(celery_processes: CeleryProcesses) -> None:
    celery_processes.worker(*WORKER, concurrency=2)
    celery_processes.beat()
    tick = send("early", kwargs={"seconds": 60.0}, max_attempts=3, ttl=20.0)
    inside(tick)
    app.control.revoke(task_id_of(tick), terminate=True)
    cut = execution_of(tick, ExecutionState.FAILED)
    assert "told to end" in cut.reason
    wait_until(lambda: Tick.objects.get(pk=tick.pk).reason == "revoked while its body ran", message="it says why")
    assert closed(tick).outcome == "failed"

    called = app.send_task("tests.support.celery_tasks.early", args=(60.0,))
    row = wait_until(lambda: Execution.objects.filter(task_id=called.id).first(), timeout=30, message="it is inside")
    called.revoke(terminate=True)
    assert closed(row.tick).outcome == "failed"

    killed = send("early", kwargs={"seconds": 60.0}, max_attempts=3)
    inside(killed)
    app.control.revoke(task_id_of(killed), terminate=True, signal="SIGKILL")
    execution_of(killed, ExecutionState.ABANDONED)
    assert closed(killed).outcome == "failed" and states(killed) == ["abandoned"]
    assert [bodies(one) for one in (tick, row.tick, killed)] == [1, 1, 1]


def test_a_revoke_reaches_all_copies_and_nothing_after_the_end(celery_processes: CeleryProcesses) -> None:
    worker = celery_processes.worker(*WORKER)
    busy = send("early", kwargs={"seconds": LONG})
    inside(busy)
    tick = send("early", kwargs={"seconds": 0.0}, copies=3)
    app.control.revoke(task_id_of(tick))
    wait_until(lambda: said(worker, "flagged as revoked"), message="the worker has heard of it")
    let_out(busy)
    assert closed(tick).outcome == "revoked"
    after = send("early", kwargs={"seconds": 0.0})
    assert closed(after).outcome == "executed"
    assert states(tick) == []  # the copies were discarded before, under the same id
    app.control.revoke(task_id_of(after), terminate=True)
    last = send("early", kwargs={"seconds": 0.0})
    assert closed(last).outcome == "executed"
    after.refresh_from_db()
    assert (after.outcome, after.reason) == ("executed", "")


def test_a_copy_that_comes_after_the_deadline_runs_nothing_and_bars_no_later_one(
    celery_processes: CeleryProcesses,
) -> None:
    """The worker bars the id of what it has dropped; the message with a new deadline has another."""
    worker = celery_processes.worker(*WORKER)
    tick = send("early", kwargs={"seconds": 0.0}, copies=0)
    Tick.objects.filter(pk=tick.pk).update(deadline=Now())
    tick.refresh_from_db()
    assert publish([tick]).ids == [tick.pk]
    wait_until(lambda: said(worker, "Discarding revoked"), timeout=20, message="the worker has dropped it")
    Tick.objects.filter(pk=tick.pk).update(deadline=Now() + timedelta(minutes=1))
    tick.refresh_from_db()
    assert publish([tick]).ids == [tick.pk]
    assert closed(tick).outcome == "executed" and states(tick) == ["executed"]
