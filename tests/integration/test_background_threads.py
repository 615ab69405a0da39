"""The threads that a process has beside its bodies outlive a moment in which the system refuses something."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from scheduler import ledger, presence
from scheduler.aside import Aside
from scheduler.heartbeat import Heart
from scheduler.models import Execution, Instance
from scheduler.presence import Presence
from scheduler.watchdog import Watchdog
from tests.integration.test_ticker import dead_execution
from tests.support import wait_until
from tests.support.engine import database_now
from tests.support.threads import no_thread_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick_heart() -> Iterator[None]:
    with override_settings(AEGIS={**settings.AEGIS, "HEARTBEAT": 0.05}):
        yield


def stamped(execution: Execution) -> Callable[[], bool]:
    """Whether a silent execution has been stamped since."""
    long_ago = database_now() - timedelta(hours=1)
    Execution.objects.filter(pk=execution.pk).update(heartbeat_at=long_ago)
    return lambda: Execution.objects.filter(pk=execution.pk, heartbeat_at__gt=long_ago).exists()


def test_a_heart_that_could_not_be_started_beats_for_the_next_body() -> None:
    heart = Heart()
    execution = dead_execution("database")
    with no_thread_once("aegis-heartbeat"), pytest.raises(RuntimeError, match="start new thread"):
        heart.add(execution.pk)
    heart.add(execution.pk)
    wait_until(stamped(execution), message="the execution is stamped")
    heart.remove(execution.pk)


def test_what_a_beat_does_aside_begins_with_a_later_pass() -> None:
    worked = threading.Event()
    aside = Aside("odd jobs", worked.set, lambda: 0.01, watchdog=Watchdog(30))
    with no_thread_once("aegis-odd jobs"):
        aside.start()
        aside.start()
    wait_until(worked.is_set, message="it works")
    aside.stop()


def fail_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """``call``, which fails the first time in a way that nobody foresaw."""
    failed: list[int] = []

    def called(*args: Any, **kwargs: Any) -> Any:
        if not failed:
            failed.append(1)
            raise OSError(24, "Too many open files")
        return call(*args, **kwargs)

    return called


def test_a_heart_goes_on_beating_after_an_error_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    heart = Heart()
    execution = dead_execution("database")
    monkeypatch.setattr(ledger, "beat_hearts", fail_once(ledger.beat_hearts))
    later = stamped(execution)
    heart.add(execution.pk)
    wait_until(later, message="the execution is stamped by a later beat")
    heart.remove(execution.pk)


def test_a_worker_goes_on_showing_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "execute", fail_once(presence.execute))
    worker = Presence("worker", "w1@test")
    worker.stamp_in_background()
    wait_until(lambda: Instance.objects.filter(name="w1@test").exists(), message="it arrives with a later stamp")
    worker.leave()
