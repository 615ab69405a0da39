"""Jitter of real ticks: when they are published first, and what their deadline is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection

from aegis_site.celery import app
from scheduler.jitter import delay
from scheduler.minting import mint
from scheduler.models import Schedule, Tick
from scheduler.states import TickState
from scheduler.ticker import Ticker
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "aegis-test-jitter"


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    with app.connection_for_write() as broker:
        broker.default_channel.client.delete(QUEUE)


def queued() -> int:
    with app.connection_for_write() as broker:
        return int(broker.default_channel.client.llen(QUEUE))


def just_due(jitter: float, *, ago: float = 0.5, **fields: Any) -> Schedule:
    """An hourly schedule that came due half a second ago."""
    schedule = make_schedule("hourly", every_seconds=3600, jitter_seconds=jitter, queue=QUEUE, **fields)
    anchor = database_now() - timedelta(seconds=ago)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_schedule SET anchor = %s WHERE id = %s", [anchor, schedule.pk])
        activated = anchor - timedelta(seconds=1)
        cursor.execute("UPDATE aegis_scheduler_schedule SET activated_at = %s", [activated])
    schedule.refresh_from_db()
    return schedule


def test_a_tick_keeps_its_nominal_time_waits_for_its_jitter_and_does_not_hold_up_the_pass() -> None:
    schedule = just_due(3000)
    assert Ticker().tick() <= 1.0
    tick = Tick.objects.get()
    expected = delay(schedule.pk, schedule.anchor, 3000)
    assert tick.fire_time == schedule.anchor
    assert tick.jitter == expected.total_seconds()
    assert tick.dispatch_at == schedule.anchor + expected
    assert tick.deadline == tick.dispatch_at + timedelta(seconds=schedule.misfire_grace)
    assert (tick.state, queued()) == (TickState.PLANNED, 0)

    Tick.objects.update(dispatch_at=database_now())
    Ticker().tend()
    tick.refresh_from_db()
    assert (tick.state, tick.copies, queued()) == (TickState.DISPATCHED, 0, 1)

    Tick.objects.update(dispatch_at=database_now())
    Ticker().tend()
    tick.refresh_from_db()
    assert (tick.copies, queued()) == (1, 2)


def test_without_jitter_a_tick_is_published_by_the_pass_that_stores_it() -> None:
    just_due(0)
    Ticker().tick()
    assert queued() == 1


def test_what_is_caught_up_is_spread_as_well() -> None:
    """An hour without a beat, and a thousand schedules: not all at one instant."""
    schedule = just_due(3000, ago=600)
    before = database_now()
    mint()
    tick = Tick.objects.get()
    assert tick.dispatch_at >= before + delay(schedule.pk, schedule.anchor, 3000)


@pytest.mark.parametrize("jitter", [3600, 5000, -1])
def test_jitter_as_long_as_the_interval_is_refused_by_the_schema(jitter: float) -> None:
    schedule = make_schedule("hourly", every_seconds=3600)
    with connection.cursor() as cursor, pytest.raises(IntegrityError, match="aegis_schedule_jitter"):
        cursor.execute("UPDATE aegis_scheduler_schedule SET jitter_seconds = %s WHERE id = %s", [jitter, schedule.pk])


def test_jitter_beyond_the_shortest_gap_of_a_cron_marks_the_row() -> None:
    """Every quarter of an hour in Lord Howe; raw SQL asks for more jitter than that."""
    schedule = make_schedule("quarters", cron_expression="*/15 * * * *", time_zone="Australia/Lord_Howe")
    Schedule.objects.filter(pk=schedule.pk).update(jitter_seconds=900)
    Ticker().tick()
    schedule.refresh_from_db()
    assert "900 s" in schedule.broken_reason
    Schedule.objects.filter(pk=schedule.pk).update(jitter_seconds=899)
    Ticker().tick()
    schedule.refresh_from_db()
    assert schedule.broken_reason == "" and schedule.next_fire_at is not None
