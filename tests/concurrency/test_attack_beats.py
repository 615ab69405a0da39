"""Beats under attack: signals at the wrong moment, kill -9, a broker or a database that is away, ordinary rows."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from aegis_site.celery import app
from aegis_site.embedded import Services
from locks import lock_backends
from locks.connection import close_all
from scheduler.beat import ORDINARY_ROWS
from scheduler.models import Execution, Instance, Schedule, Tick
from scheduler.states import ExecutionState
from scheduler.ticker import Ticker
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import database_now, make_schedule, mint_all

pytestmark = pytest.mark.django_db(transaction=True)

DIGEST = "aegis_site.demo.tasks.send_digest"
QUEUE = "aegis-test-ordinary"


def ordinary(every: int = 2, **fields: object) -> PeriodicTask:
    interval, _ = IntervalSchedule.objects.get_or_create(every=every, period="seconds")
    return PeriodicTask.objects.create(
        name="ordinary", task="no.worker.takes.it", interval=interval, queue=QUEUE, **fields
    )


def delivered() -> int:
    with app.connection_for_write() as broker:
        return int(broker.default_channel.client.llen(QUEUE))


def holder() -> object:
    info = lock_backends["database"].inspect(ORDINARY_ROWS)
    return info and info.lease_id


def test_two_beats_fire_an_ordinary_row_once_per_period(celery_processes: CeleryProcesses) -> None:
    ordinary(every=2)
    celery_processes.beat()
    celery_processes.beat()
    wait_until(lambda: delivered() >= 1, timeout=30, message="the row fired")
    since, before = time.monotonic(), delivered()
    wait_until(lambda: time.monotonic() - since >= 20, timeout=30, message="twenty seconds are over")
    fired, elapsed = delivered() - before, time.monotonic() - since
    assert 4 <= fired <= elapsed / 2 + 2, (fired, elapsed)  # a row counts two seconds from when it has fired


def test_a_beat_that_is_asked_to_stop_gives_the_ordinary_rows_to_the_other_at_once(
    celery_processes: CeleryProcesses,
) -> None:
    ordinary(every=2)
    first = celery_processes.beat()
    wait_until(lambda: delivered() >= 1, timeout=30, message="the row fired")
    mine = wait_until(holder, message="the first beat holds the lease")
    second = celery_processes.beat()
    assert holder() == mine
    first.ask_to_stop()
    assert first.wait(timeout=60) is not None
    assert holder() != mine  # given back: its TTL is not over
    wait_until(lambda: holder() not in (None, mine), timeout=30, message="the other beat took over")
    assert second.running


def test_a_beat_killed_hard_is_followed_within_its_ttl_and_no_row_is_fired_twice(
    celery_processes: CeleryProcesses,
) -> None:
    """An hourly row that has just fired must not fire again because the next beat read an old last run."""
    row = ordinary(every=3600, last_run_at=database_now() - timedelta(hours=2))
    first = celery_processes.beat()
    wait_until(lambda: delivered() == 1, timeout=30, message="the new row fired once")
    mine = holder()
    celery_processes.beat()
    first.signal_group(signal.SIGKILL)
    killed = database_now()
    wait_until(lambda: holder() not in (None, mine), timeout=40, message="the other beat took over")
    assert database_now() - killed < timedelta(seconds=25)  # ten of them are the TTL's
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > 4, timeout=10, message="a few passes are over")
    assert delivered() == 1
    row.refresh_from_db()
    assert row.last_run_at is not None


def test_a_beat_asked_to_stop_while_the_database_hangs_does_stop(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    """The signal interrupts a statement; the handler must not wait for the connection that this statement holds.

    Three beats are asked at three moments of a pass.
    """
    make_schedule("digest", every_seconds=1, task=DIGEST)
    beats = [celery_processes.beat() for _ in range(3)]
    at_work = Instance.objects.filter(kind="beat")
    wait_until(lambda: at_work.count() == len(beats), timeout=60, message="the beats work")
    services.postgres.pause()
    since = time.monotonic()
    for moment, beat in zip((1.5, 1.85, 2.2), beats, strict=True):
        wait_until(lambda m=moment: time.monotonic() - since > m, message="the beat waits for the database")
        beat.ask_to_stop()
    try:
        assert None not in [beat.wait(timeout=60) for beat in beats]
    finally:
        services.postgres.resume()


def test_a_beat_that_is_asked_to_stop_again_and_again_always_stops(celery_processes: CeleryProcesses) -> None:
    ordinary(every=1)
    for number in range(20):
        make_schedule(f"digest-{number}", every_seconds=1, task=DIGEST, queue=QUEUE)
    for _ in range(6):
        beat = celery_processes.beat()
        beat.ask_to_stop()
        assert beat.wait(timeout=60) is not None


def test_without_a_broker_ticks_are_stored_and_with_it_they_run(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    """The broker is away when the beat starts and goes away again; ordinary rows are due all the time."""
    make_schedule("digest", every_seconds=1, task=DIGEST)
    ordinary(every=1)
    services.redis["broker"].stop()
    beat = celery_processes.beat()
    wait_until(lambda: Tick.objects.count() >= 5, timeout=40, message="ticks are stored without a broker")
    services.redis["broker"].start()
    celery_processes.worker()
    ran = Execution.objects.filter(state=ExecutionState.EXECUTED)
    wait_until(lambda: ran.count() >= 5, timeout=60, message="they run")
    wait_until(lambda: delivered() >= 1, timeout=30, message="the ordinary row fires")

    services.redis["broker"].stop()
    stored = Tick.objects.count()
    wait_until(lambda: Tick.objects.count() >= stored + 5, timeout=40, message="ticks are stored all the same")
    assert beat.running
    services.redis["broker"].start()
    before = ran.count()
    wait_until(lambda: ran.count() >= before + 5, timeout=60, message="they run again")
    assert beat.running


def test_a_broker_that_hangs_does_not_stop_the_storing_of_ticks(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    make_schedule("digest", every_seconds=1, task=DIGEST, queue=QUEUE)
    ordinary(every=1)
    beat = celery_processes.beat()
    wait_until(lambda: Tick.objects.count() >= 2, timeout=30, message="the beat works")
    services.redis["broker"].pause()
    try:
        stored = Tick.objects.count()
        wait_until(lambda: Tick.objects.count() >= stored + 8, timeout=90, message="ticks are stored all the same")
    finally:
        services.redis["broker"].resume()
    assert beat.running


def test_a_beat_without_its_database_for_ten_seconds_lives(
    celery_processes: CeleryProcesses, services: Services
) -> None:
    make_schedule("digest", every_seconds=1, task=DIGEST, queue=QUEUE)
    ordinary(every=1)
    beat = celery_processes.beat()
    wait_until(lambda: Tick.objects.count() >= 2, timeout=30, message="the beat works")
    close_all()
    connection.close()
    services.postgres.stop()
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > 10, timeout=15, message="ten seconds are over")
    services.postgres.start()
    stored = Tick.objects.count()
    wait_until(lambda: Tick.objects.count() >= stored + 10, timeout=40, message="the beat goes on")
    assert beat.running
    before = delivered()
    wait_until(lambda: delivered() > before + 3, timeout=20, message="ordinary rows and ticks are delivered")


def test_thirty_seconds_without_a_beat_are_no_flood_unless_all_was_asked_for(
    celery_processes: CeleryProcesses,
) -> None:
    for policy in ("skip", "fire_once", "fire_all"):
        for grace in (60, 5):
            make_schedule(
                f"{policy}-{grace}", every_seconds=1, task=DIGEST, queue=QUEUE, misfire=policy, misfire_grace=grace
            )
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET activated_at = clock_timestamp() - interval '30 s'")
    mint_all()

    def outcome(name: str) -> tuple[int, int]:
        made = Tick.objects.filter(schedule_name=name)
        missed = made.filter(state="misfired").values_list("missed_count", flat=True)
        return made.exclude(state="misfired").count(), sum(missed)

    for name in ("fire_all-60", "fire_all-5"):
        fired, missed = outcome(name)
        assert 30 <= fired <= 45
        assert missed == 0
    for name in ("skip-60", "fire_once-60", "skip-5", "fire_once-5"):
        fired, missed = outcome(name)
        assert 1 <= fired <= 12
        assert 30 <= fired + missed <= 45


def test_a_thousand_schedules_due_at_once_are_each_stored_and_published_once(
    celery_processes: CeleryProcesses, settings: Any
) -> None:
    # No worker takes the messages, and a slow machine needs longer than the time after which they are sent again.
    settings.AEGIS = {**settings.AEGIS, "REDISPATCH_GRACE": 300}
    for number in range(1000):
        make_schedule(f"s{number}", once_at=datetime(2026, 1, 1, tzinfo=UTC), task=DIGEST, queue=QUEUE)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET once_at = clock_timestamp() - interval '1 s'")
        cursor.execute("UPDATE aegis_scheduler_schedule SET activated_at = clock_timestamp() - interval '1 h'")
    ticker = Ticker()
    wait_until(
        lambda: ticker.tick() and Tick.objects.filter(state="dispatched").count() == 1000,
        timeout=60, message="all are published, by as many passes as this machine needs",
    )  # fmt: skip
    assert delivered() == 1000
    assert Schedule.objects.filter(exhausted=True).count() == 1000


def test_an_ordinary_row_that_cannot_be_read_ends_no_beat(celery_processes: CeleryProcesses) -> None:
    row = ordinary(every=1)
    PeriodicTask.objects.create(name="bad", task="no.worker.takes.it", interval=row.interval, headers="null")
    make_schedule("digest", every_seconds=1, task=DIGEST)
    beat = celery_processes.beat()
    wait_until(lambda: delivered() >= 1, timeout=30, message="the other row fired")
    wait_until(lambda: Tick.objects.count() >= 2, timeout=30, message="the catalog goes on")
    assert beat.running
