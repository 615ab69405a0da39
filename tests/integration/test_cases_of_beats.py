"""Reports of what went wrong in beats of comparable systems (``tests/cases.md``), tried here."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from kombu import pools

from aegis_site.celery import app
from aegis_site.embedded import Services
from scheduler.minting import mint
from scheduler.models import Schedule, Tick
from scheduler.publisher import Published, publish
from scheduler.registry import exclusive_tasks
from scheduler.ticker import Ticker
from tests.integration.test_ticker import QUEUE, empty_queue, queued  # noqa: F401
from tests.support import wait_until
from tests.support.engine import database_now, make_schedule, make_tick, store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def tasks_are_imported() -> None:
    """Celery sets up Django before it imports them, and with that the logging: ``caplog`` would hear nothing."""
    exclusive_tasks()


def asked(sql: str, *parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchone()[0]


def waiting() -> bool:
    """Whether a session of this database waits for a lock of another."""
    return bool(asked("SELECT count(*) FROM pg_locks WHERE NOT granted"))


def deadlocks() -> int:
    return int(asked("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


def test_a_pass_that_is_ended_by_a_deadlock_is_followed_by_one_that_fires(caplog: pytest.LogCaptureFixture) -> None:
    """Another session has stored the tick and not committed it, and then wants the row that the pass holds."""
    at = database_now() + timedelta(seconds=1)
    schedule = make_schedule("once", once_at=at, queue=QUEUE)
    before, holds = deadlocks(), threading.Event()

    def want_both() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '1min'")  # the pass is the one that is ended
                make_tick(schedule, fire_time=at)
                holds.set()
                wait_until(waiting, message="the pass waits for this session")
                Schedule.objects.filter(pk=schedule.pk).update(notes="edited")
                transaction.set_rollback(True)
        finally:
            connection.close()

    other = threading.Thread(target=want_both)
    other.start()
    assert holds.wait(30)
    wait_until(lambda: database_now() > at, message="it is due")
    with connection.cursor() as cursor:
        cursor.execute("SET deadlock_timeout = '3s'")
    Ticker().tick()
    other.join(30)
    assert "this pass left out _mint_and_publish: OperationalError" in caplog.text
    wait_until(lambda: deadlocks() > before, message="the server has counted a deadlock")
    assert not Tick.objects.exists()
    Ticker().tick()
    assert (Tick.objects.get().fire_time, queued()) == (at, 1)


def test_the_first_message_that_the_broker_does_not_take_is_the_last_of_that_pass(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It hangs, and each of the twenty would wait for its own time-out."""
    patience = {**app.conf.broker_transport_options, "socket_timeout": 0.5, "socket_connect_timeout": 0.5}
    monkeypatch.setitem(app.conf, "broker_transport_options", patience)
    schedule = make_schedule("one", queue=QUEUE)
    ticks = [make_tick(schedule, seconds_ago=number) for number in range(20)]
    try:
        connect_anew()
        assert publish(ticks[:1]).ids == [ticks[0].id]
        services.redis["broker"].pause()
        began = time.monotonic()
        assert publish(ticks) == Published([], broker_failed=True)
        assert time.monotonic() - began < 5
        assert caplog.text.count("published 0 of 20 ticks, the broker failed") == 1
    finally:
        services.restore()
        monkeypatch.undo()
        connect_anew()


def connect_anew() -> None:
    """Forget the connections of this process: the next one is made as the settings say now."""
    pools.reset()
    app._pool = None
    app.amqp._producer_pool = None


@pytest.mark.parametrize("project", ["UTC", "America/New_York", "Asia/Dhaka"])
@pytest.mark.parametrize(("row", "utc"), [("UTC", 9), ("America/New_York", 14), ("Asia/Dhaka", 3)])
def test_a_daily_row_fires_once_whatever_its_zone_and_that_of_the_project(
    row: str, utc: int, project: str, settings: Any
) -> None:
    settings.TIME_ZONE = project
    day = datetime(2026, 1, 15, tzinfo=UTC)
    schedule = make_schedule("daily", cron_expression="0 9 * * *", time_zone=row, queue=QUEUE)
    store(schedule, activated_at=day)
    for seconds in range(-2, 60):
        mint(now=day + timedelta(hours=utc, seconds=seconds))
    assert [tick.fire_time for tick in Tick.objects.all()] == [day + timedelta(hours=utc)]
    assert Schedule.objects.get().next_fire_at == day + timedelta(days=1, hours=utc)
