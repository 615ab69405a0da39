"""A beat whose machine has a wrong clock, and a beat that goes on and on."""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter
from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from locks import lock_backends
from scheduler.models import Schedule, Tick
from scheduler.states import TickState
from scheduler.ticker import Ticker
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "aegis-test-over-time"


@pytest.mark.parametrize("hours", [-26, 0, 26], ids=["behind", "right", "ahead"])
def test_what_is_due_is_the_databases_business_whatever_the_beats_clock_says(hours: int) -> None:
    """Another beat's clock is right: the two make the same ticks, none early, none late, none twice."""
    now = database_now()
    make_schedule("due", every_seconds=3600, queue=QUEUE)
    make_schedule("later", every_seconds=3600, queue=QUEUE)
    Schedule.objects.filter(name="due").update(
        next_fire_at=now - timedelta(seconds=1), activated_at=now - timedelta(hours=2)
    )
    Schedule.objects.filter(name="later").update(next_fire_at=now + timedelta(minutes=30))
    with time_machine.travel(time.time() + 3600 * hours, tick=True):
        assert abs((timezone.now() - now).total_seconds() - 3600 * hours) < 600
        wait = Ticker().tick()
        Ticker().tick()
    (tick,) = Tick.objects.all()
    assert (tick.schedule_name, tick.fire_time) == ("due", now - timedelta(seconds=1))
    assert tick.state == TickState.DISPATCHED
    assert 0 < wait <= 1
    upcoming = Schedule.objects.get(name="due").next_fire_at
    assert upcoming is not None and now < upcoming <= now + timedelta(hours=1)


def test_a_lease_ends_by_its_own_clock_whatever_the_holders_calendar_says() -> None:
    with time_machine.travel(time.time() + 86_400, tick=True):
        lease = lock_backends["database"].acquire("calendar", ttl=60)
        assert lease is not None
    assert lock_backends["database"].acquire("calendar", ttl=60) is None
    assert lock_backends["database"].renew(lease).lease_id == lease.lease_id
    assert lock_backends["database"].release(lease)


def test_a_beat_that_goes_on_and_on_keeps_nothing_of_what_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """Two hundred passes, each with a tick to store, publish and settle: the process holds what it held before."""
    schedule = make_schedule("each-pass", every_seconds=1, queue=QUEUE, misfire_grace=0.001)
    ticker = Ticker()
    for logger in ("aegis.ticker", "celery.app.base"):
        caplog.set_level(logging.ERROR, logger)  # the records of a test are kept

    def passes(count: int) -> int:
        for _ in range(count):
            due = database_now()
            Schedule.objects.filter(pk=schedule.pk).update(next_fire_at=due, activated_at=due - timedelta(seconds=1))
            ticker.tick()
        gc.collect()
        return len(gc.get_objects())

    passes(30)  # what is made once is made
    before, kinds = passes(30), Counter(type(found).__name__ for found in gc.get_objects())
    after = passes(200)
    grown = Counter(type(found).__name__ for found in gc.get_objects()) - kinds
    assert Tick.objects.count() > 200
    assert after - before < 100, f"objects after 200 more passes: {grown.most_common(10)}"
