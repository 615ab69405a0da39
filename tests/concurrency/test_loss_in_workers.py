"""Losing a lease in real workers: beside Celery's time limits, and in pools that cannot be interrupted or killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from aegis_site.demo.models import Effect
from scheduler.models import Execution, Tick
from scheduler.publisher import publish
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import make_schedule, make_tick

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

TASKS = "tests.support.loss_tasks"
TTL = 30.0  # seconds; no lease ends by itself on a busy machine: those that are to end are taken away


def send(name: str, task: str, **kwargs: str) -> int:
    """Publish one tick of a schedule of its own; returns the tick's id."""
    tick = make_tick(make_schedule(name, ttl=TTL, task=f"{TASKS}.{task}", kwargs=kwargs))
    assert publish([tick]).ids == [tick.id]
    return tick.id


def execution_of(tick: int, *states: ExecutionState) -> Execution:
    found = wait_until(
        lambda: Execution.objects.filter(tick=tick, state__in=states).first(),
        timeout=40,
        message=lambda: f"{states}, seen: {list(Execution.objects.values_list('state', 'reason', 'error'))}",
    )
    assert found is not None
    return found


def reached(how: str) -> list[str]:
    subjects = Effect.objects.filter(subject__startswith=f"{how}: ").order_by("id").values_list("subject", flat=True)
    return [subject.removeprefix(f"{how}: ") for subject in subjects]


def test_the_interrupt_and_celerys_limits_do_not_disturb_each_other(celery_processes: CeleryProcesses) -> None:
    """One child after another meets them in each order, many times: a handler that is lost would be missed later."""
    celery_processes.worker("-I", TASKS)
    pids = set()
    for number, how in enumerate(["lost", "soft", "soft, then lost", "soft", "lost", "soft, then lost"]):
        expected = ExecutionState.FAILED if how == "soft" else ExecutionState.LOST
        Effect.objects.all().delete()
        ended = execution_of(send(f"limited-{number}", "limited", how=how), expected)
        assert ended.ran is not None and ended.ran < 8
        assert ("SoftTimeLimitExceeded" if how == "soft" else "LeaseLost") in ended.error
        assert reached(how) == (["began"] if how == "lost" else ["began", "soft limit"])
        pids.add(ended.pid)
    assert len(pids) == 1  # the same child all along

    tick = send("limited-hard", "limited", how="hard")
    wait_until(lambda: reached("hard") == ["began", "soft limit"], timeout=20, message="the soft limit was met")
    wait_until(
        lambda: "Hard time limit (8s) exceeded" in celery_processes.started[0].log.read_text(errors="replace"),
        timeout=20,
        message="the hard limit ended the child",
    )
    assert Execution.objects.get(tick=tick, began=True).pid in pids


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_where_a_pool_cannot_be_killed_the_delivery_is_blocked(pool: str, celery_processes: CeleryProcesses) -> None:
    celery_processes.worker("-I", TASKS, pool=pool)
    blocked = execution_of(send("doomed", "scribble_until_killed"), ExecutionState.BLOCKED)
    assert "prefork" in blocked.reason and "on_lost='interrupt'" in blocked.reason
    assert not Effect.objects.exists()
    assert Tick.objects.get(pk=blocked.tick_id).outcome == ""  # a prefork worker may still take it


def test_solo_is_interrupted_and_threads_are_told_when_they_ask(celery_processes: CeleryProcesses) -> None:
    solo = celery_processes.worker("-I", TASKS, pool="solo", name="solo")
    interrupted = execution_of(send("one", "wait_for_loss"), ExecutionState.LOST)
    assert "LeaseLost" in interrupted.error and not Effect.objects.exists()
    solo.stop()
    threads = celery_processes.worker("-I", TASKS, pool="threads", name="threads")
    asked = execution_of(send("two", "wait_for_loss"), ExecutionState.LOST)
    assert asked.error == "" and Effect.objects.get().subject == "asked"
    assert "on_lost='interrupt' is done as 'check' here" in threads.log.read_text()


def test_a_child_killed_right_after_its_finishing_commit_repeats_nothing(
    celery_processes: CeleryProcesses, tmp_path: Path
) -> None:
    points = tmp_path / "failpoints"
    points.mkdir()
    (points / "after-body").write_text("kill")
    celery_processes.worker("-I", TASKS, env={"AEGIS_FAILPOINTS": str(points)})
    tick = make_tick(make_schedule("settle", ttl=TTL, task=f"{TASKS}.settle_once", max_attempts=3))
    publish([tick])
    wait_until(lambda: list(points.glob("after-body.reached.*")), timeout=30, message="the child was killed")
    assert execution_of(tick.id, ExecutionState.EXECUTED).tick_id == tick.id
    (points / "after-body").unlink()
    publish([tick])  # a copy, as a broker or a beat sends it
    execution_of(tick.id, ExecutionState.DUPLICATE)
    assert Tick.objects.get(pk=tick.pk).outcome == "executed" and Effect.objects.count() == 1
