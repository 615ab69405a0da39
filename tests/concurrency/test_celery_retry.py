"""``self.retry()`` and ``autoretry_for``: the tick waits, nothing else does."""

from __future__ import annotations

import pytest
from celery.exceptions import MaxRetriesExceededError

from aegis_site.celery import app
from aegis_site.demo.models import Effect
from scheduler.models import Execution, Tick
from scheduler.publisher import publish
from scheduler.states import ExecutionState, TickState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import WORKER, bodies, closed, execution_of, send, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

COUNTDOWN = 3.0  # seconds


def waiting_for_attempt(tick: Tick, attempt: int) -> Tick:
    wait_until(
        lambda: Tick.objects.filter(pk=tick.pk, attempt=attempt, state=TickState.DISPATCHED).exists(),
        timeout=40,
        message=f"the tick waits for attempt {attempt}",
    )
    tick.refresh_from_db()
    return tick


def test_a_late_copy_never_takes_the_next_attempt_before_its_countdown(celery_processes: CeleryProcesses) -> None:
    celery_processes.worker(*WORKER, concurrency=2)
    tick = send("asking", kwargs={"countdown": COUNTDOWN, "times": 1})
    first = execution_of(tick, ExecutionState.RETRIED)
    copy = Tick.objects.get(pk=tick.pk)
    copy.attempt = 1
    publish([copy])
    duplicate = execution_of(tick, ExecutionState.DUPLICATE)
    assert duplicate.attempt == 1
    # No message of the second attempt waits anywhere, as an ETA or otherwise.
    wait_until(broker_is_empty, message="the broker is empty")
    assert bodies(tick) == 1
    celery_processes.beat()
    second = execution_of(tick, ExecutionState.EXECUTED)
    assert first.ended_at is not None and second.started_at is not None
    assert (second.started_at - first.ended_at).total_seconds() >= COUNTDOWN and second.attempt == 2
    assert closed(tick).outcome == "executed" and bodies(tick) == 2


def broker_is_empty() -> bool:
    with app.connection_for_write() as connection:
        client = connection.default_channel.client
        return client.llen("celery") == 0 and client.hlen("unacked") == 0


def test_retries_come_to_their_end(celery_processes: CeleryProcesses) -> None:
    """Without a countdown, at Celery's limit, by autoretry_for, and without the guard, which has no attempts."""
    celery_processes.worker(*WORKER, concurrency=2)
    celery_processes.beat()
    at_once = send("asking", kwargs={"countdown": 0.0, "times": 2})
    exhausted = send("asking", kwargs={"countdown": 0.0, "times": 9})
    auto = send("autoretrying", kwargs={"how": "once"})
    failing = send("autoretrying", kwargs={"how": "always"})
    unguarded = send("asking", kwargs={"countdown": 0.0, "times": 1}, once_per_tick=False)
    lost = send("autoretrying", kwargs={"how": "lose"})

    assert closed(at_once).outcome == "executed" and states(at_once) == ["retried", "retried", "executed"]
    assert closed(exhausted).outcome == "failed" and states(exhausted) == ["retried", "retried", "failed"]
    assert MaxRetriesExceededError.__name__ in Execution.objects.get(tick=exhausted, state="failed").error
    assert closed(auto).outcome == "executed" and states(auto) == ["retried", "executed"]
    assert closed(failing).outcome == "failed" and states(failing) == ["retried", "failed"]
    assert "ValueError" in Execution.objects.get(tick=failing, state="failed").error
    assert closed(unguarded).outcome == "failed" and states(unguarded) == ["failed"]
    assert "tick guard" in Execution.objects.get(tick=unguarded).error
    # A lost lease is no failure of the body: it is tried again by max_attempts, which is 1, and not by Celery.
    assert closed(lost).outcome == "lost" and states(lost) == ["lost"]
    for tick, times in ((at_once, 3), (exhausted, 3), (auto, 2), (failing, 2), (unguarded, 1), (lost, 1)):
        assert Effect.objects.filter(schedule=tick.schedule_name).count() == times == bodies(tick)
