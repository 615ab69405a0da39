"""Chains, groups, chords, links, eager mode: whoever waits for an exclusive task is answered."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import ChordError
from celery.result import AsyncResult

from aegis_site.celery import app
from aegis_site.demo.models import Effect
from locks import Lease, LockNotAcquired, lock_backends
from scheduler import is_skipped
from scheduler.models import Execution, LockName, Tick
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_tasks import (
    after,
    asking_part,
    failing_part,
    late_part,
    on_error,
    part,
    skipping_part,
)
from tests.support.celery_ways import WORKER, closed, configured

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.concurrency,
    pytest.mark.slow,
]

LIMIT = 60.0  # seconds after which a chord is said to wait for ever


@pytest.fixture
def client() -> Iterator[Celery]:
    """An app with a result backend, which the demo's has not."""
    other = Celery("client", broker=app.conf.broker_url, backend=app.conf.broker_url, set_as_current=False)
    other.conf.update(task_default_queue="celery", accept_content=["json"])
    other.set_current()
    yield other
    app.set_current()
    gc.collect()  # a result unsubscribes when it is collected, and connects to do so
    other.backend.result_consumer.stop()
    other.backend.client.close()
    other.close()


@pytest.fixture
def held() -> Iterator[Lease]:
    """The lock name of the parts, held by somebody who is no exclusive task."""
    LockName.objects.create(name="ways.part", alias_wanted="database", alias_in_force="database")
    lease = lock_backends["database"].acquire("ways.part", ttl=300.0)
    assert lease is not None
    yield lease
    lock_backends["database"].release(lease)


def with_results() -> tuple[str, ...]:
    return configured(result_backend=app.conf.broker_url, task_ignore_result=False)


def get(result: Any) -> Any:
    return result.get(timeout=LIMIT, interval=0.05)


def failure(result: Any) -> str:
    """What the last step of a canvas failed with, which its part's failure does not tell."""
    wait_until(result.ready, timeout=LIMIT, message="the canvas has ended")
    assert isinstance(result.result, ChordError) and result.state == "FAILURE"
    return str(result.result)


def skipped(value: Any) -> bool:
    return is_skipped(value) and value["state"] == "prevented" and value["lock_name"] == "ways.part"


def test_a_refused_part_is_skipped_or_fails_and_the_canvas_ends(
    celery_processes: CeleryProcesses, client: Celery, held: Lease
) -> None:
    celery_processes.worker(*WORKER, *with_results(), concurrency=2)
    celery_processes.beat()

    assert skipped(get(chain(part.s(), after.s()).apply_async())["after"])
    assert all(map(skipped, get(group([part.s(), part.s()]).apply_async())))
    together = get(chord([part.s(), part.s()], after.s()).apply_async())["after"]
    assert len(together) == 2 and all(map(skipped, together))
    assert "held by another" in failure(chord([failing_part.s(), failing_part.s()], after.s()).apply_async())
    failed = chain(failing_part.s(), after.s()).apply_async(link_error=on_error.s())
    with pytest.raises(LockNotAcquired):
        get(failed.parent)
    wait_until(lambda: Effect.objects.filter(subject="errback").exists(), timeout=20, message="it was told")
    linked = part.apply_async(link=after.s())
    assert skipped(get(linked)) and skipped(get(linked.children[0])["after"])
    assert skipped(get(skipping_part.delay()))
    with pytest.raises(LockNotAcquired):
        get(failing_part.delay())
    # What was answered never runs.
    assert not Tick.objects.filter(outcome="").exists()
    assert not Execution.objects.filter(began=True).exists()

    # Without anybody who goes on from it, a refused call waits in its tick, and keeps its id.
    waiting = part.delay()
    wait_until(lambda: Execution.objects.filter(task_id=waiting.id).exists(), timeout=20, message="it was refused")
    assert lock_backends["database"].release(held)
    assert get(waiting) == "part 1"


def test_the_canvas_goes_on_after_a_retry_and_runs_its_parts_one_at_a_time(
    celery_processes: CeleryProcesses, client: Celery
) -> None:
    celery_processes.worker(*WORKER, *with_results(), concurrency=3)
    celery_processes.beat()
    assert get(chain(asking_part.s(), after.s()).apply_async()) == {"after": "part 2"}
    assert get(chord([asking_part.s()], after.s()).apply_async()) == {"after": ["part 2"]}
    assert get(asking_part.delay()) == "part 2"

    together = get(chord([part.s(5.0), part.s(5.0)], after.s()).apply_async())["after"]
    assert sorted("skipped" if is_skipped(one) else one for one in together) == ["part 1", "skipped"]
    times = Effect.objects.filter(resource="ways.part").values_list("entered_at", "left_at")
    assert len(times) == 1


def test_a_part_that_is_cut_short_fails_when_its_message_comes_again(
    celery_processes: CeleryProcesses, client: Celery
) -> None:
    """Late acks and a cold shutdown: the broker gives the part to another worker, which must not run it."""
    doomed = celery_processes.worker(*WORKER, *with_results())
    celery_processes.beat()
    result = chord([late_part.s(60.0)], after.s()).apply_async()
    running = wait_until(
        lambda: Execution.objects.filter(state=ExecutionState.RUNNING).first(), timeout=30, message="it is inside"
    )
    wait_until(Effect.objects.exists, message="the body is inside")
    os.kill(doomed.pid, signal.SIGQUIT)
    assert closed(running.tick).outcome == "failed"
    doomed.wait(timeout=30)
    celery_processes.worker(*WORKER, *with_results())
    assert "started by another delivery" in failure(result)
    assert Execution.objects.filter(began=True).count() == 1


def test_eager_and_direct_calls_are_answered_in_place(client: Celery, held: Lease) -> None:
    client.conf.task_always_eager = True
    for refusing in (part, failing_part):
        assert isinstance(refusing.delay().result, LockNotAcquired)
        with pytest.raises(LockNotAcquired):
            refusing.apply(throw=True)
    assert skipped(skipping_part.delay().get())
    assert skipped(chain(skipping_part.s(), after.s()).apply_async().get()["after"])
    with pytest.raises(LockNotAcquired):
        skipping_part()  # a caller in Python is told by an exception
    assert not Tick.objects.filter(outcome="").exists()
    assert lock_backends["database"].release(held)
    assert chain(part.s(), after.s()).apply_async().get() == {"after": "part 1"}
    assert part() == "part 1"


def test_without_a_result_backend_nobody_can_wait(celery_processes: CeleryProcesses, held: Lease) -> None:
    """The demo's settings. The call runs, once the name is free; a skipped one is closed all the same."""
    celery_processes.worker(*WORKER)
    celery_processes.beat()
    app.set_current()
    waits, gone = part.delay(), skipping_part.delay()
    assert isinstance(waits, AsyncResult)
    for call in (waits, gone):
        wait_until(lambda c=call: Execution.objects.filter(task_id=c.id).exists(), timeout=20, message="refused")
    wait_until(lambda: Tick.objects.filter(outcome="prevented").count() == 1, message="the skipped one is closed")
    assert lock_backends["database"].release(held)
    wait_until(lambda: Execution.objects.filter(state="executed").count() == 1, timeout=30, message="it ran")
    assert Execution.objects.get(state="executed").task_id == waits.id
