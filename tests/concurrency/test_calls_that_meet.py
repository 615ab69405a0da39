"""Two calls of one exclusive task: what becomes of the one that meets a body inside."""

from __future__ import annotations

import pytest

from aegis_site.demo.models import Effect
from scheduler.calls import key_of
from scheduler.models import Execution, Tick
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_tasks import early
from tests.support.celery_ways import LONG, WORKER, closed
from tests.support.doors import open_door

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency]


def called(seconds: float) -> Tick:
    """The tick of a call with this argument, once a worker has taken its message."""
    key = key_of(early.delay(seconds=seconds).id)
    wait_until(lambda: Execution.objects.filter(tick__manual_key=key).exists(), timeout=40, message="it was taken")
    return Tick.objects.get(manual_key=key)


def test_a_call_that_meets_a_body_inside_is_prevented_and_never_runs(celery_processes: CeleryProcesses) -> None:
    """Whatever its arguments, and although a beat is there that could send it again."""
    celery_processes.worker(*WORKER, concurrency=2)
    celery_processes.beat()
    first = called(LONG)
    wait_until(Effect.objects.exists, timeout=40, message="the first is inside")
    second = closed(called(LONG + 1))
    assert (second.outcome, second.lock_name) == ("prevented", first.lock_name)
    open_door("")  # a call has no schedule
    assert closed(first).outcome == "executed"
    assert closed(called(0.0)).outcome == "executed"  # a later one is served
    second.refresh_from_db()
    assert second.outcome == "prevented"
    assert Execution.objects.get(tick=second).state == ExecutionState.PREVENTED
    assert Effect.objects.count() == Execution.objects.filter(began=True).count() == 2
