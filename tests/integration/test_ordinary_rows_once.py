"""No ordinary row is fired twice: at a takeover, after an outage, or by a beat that lost its lease unawares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from aegis_site.celery import app
from aegis_site.embedded import Services
from aegis_site.embedded.ports import free_port
from locks import lock_backends
from locks.connection import close_all
from scheduler.beat import CatalogScheduler
from tests.integration.test_ordinary_rows import broker_is_empty, delivered, ordinary  # noqa: F401
from tests.support import wait_until
from tests.support.engine import database_now

pytestmark = pytest.mark.django_db(transaction=True)


def hourly(name: str = "hourly", due_in: float = 0.0, **fields: Any) -> PeriodicTask:
    every, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    last_run = database_now() - timedelta(hours=1) + timedelta(seconds=due_in)
    return ordinary(name, interval=every, last_run_at=last_run, **fields)


def passes(beat: CatalogScheduler, number: int = 6) -> None:
    for _ in range(number):
        beat.tick()


def holds(beat: CatalogScheduler) -> None:
    wait_until(lambda: beat.tick() >= 0 and beat._lease, timeout=30, message="the beat held the lease")


def knows_of(beat: CatalogScheduler, name: str = "hourly") -> None:
    wait_until(lambda: beat.tick() >= 0 and name in (beat._schedule or {}), timeout=30, message="it has read the row")


@pytest.fixture
def lease_is_trusted(settings: Any) -> None:
    """For longer than the test, without its store being asked again."""
    settings.AEGIS = {**settings.AEGIS, "BEAT_TTL": 120.0}


def test_a_beat_that_takes_over_after_an_edit_fires_what_is_overdue_once() -> None:
    """What it knows of edits is from before: it reads all rows twice, and makes of them what is due twice."""
    with closing(CatalogScheduler(app=app)) as fires, closing(CatalogScheduler(app=app)) as stands_by:
        holds(fires)
        stands_by.tick()
        hourly()
        fires.close()
        wait_until(lambda: stands_by.tick() >= 0 and delivered(), timeout=30, message="the row fired")
        passes(stands_by)
    assert delivered() == 1


@contextmanager
def killed(request: pytest.FixtureRequest) -> Iterator[None]:
    """For all; the leases' store as well."""
    services: Services = request.getfixturevalue("services")
    close_all()
    services.postgres.kill()
    yield
    services.postgres.start()


@contextmanager
def out_of_reach(request: pytest.FixtureRequest) -> Iterator[None]:
    """For the connection that rows are read and stored on."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(connection.settings_dict, "PORT", free_port())
        connection.close()
        yield


@pytest.mark.usefixtures("lease_is_trusted")
@pytest.mark.parametrize("away", [killed, out_of_reach])
def test_a_row_that_comes_due_while_the_database_is_away_fires_once(
    away: Callable[[pytest.FixtureRequest], AbstractContextManager[None]], request: pytest.FixtureRequest
) -> None:
    """When the database is back: what cannot be stored is not sent, and would be due for the next beat as well."""
    with closing(CatalogScheduler(app=app)) as fires, closing(CatalogScheduler(app=app)) as follows:
        holds(fires)
        row = hourly(due_in=4)
        knows_of(fires)
        due = row.last_run_at + timedelta(hours=1, seconds=1)
        with away(request):
            wait_until(lambda: fires.tick() >= 0 and timezone.now() > due, timeout=60, message="it came due")
        wait_until(lambda: fires.tick() >= 0 and delivered(), timeout=30, message="it fired")
        fires.close()
        holds(follows)
        passes(follows)
    assert delivered() == 1


@pytest.mark.usefixtures("lease_is_trusted")
def test_a_beat_that_lost_its_lease_unawares_does_not_fire_what_the_other_has_fired() -> None:
    """It stood still past the end of its lease, or its store forgot it. It goes on with what others did not fire."""
    with closing(CatalogScheduler(app=app)) as stood_still, closing(CatalogScheduler(app=app)) as other:
        holds(stood_still)
        other.tick()  # its start is an edit
        hourly(due_in=3)
        knows_of(stood_still)
        lease = stood_still._lease
        lock_backends[lease.alias].release(lease)
        holds(other)
        wait_until(lambda: other.tick() >= 0 and delivered(), timeout=30, message="the other fired")
        passes(stood_still)
        assert delivered() == 1
        hourly("another")
        wait_until(lambda: stood_still.tick() >= 0 and delivered() == 2, timeout=30, message="it fires the next")


@pytest.mark.parametrize("edit", [{"enabled": False}, {"last_run_at": None}], ids=["disabled", "begun anew"])
def test_a_row_that_was_edited_since_it_was_read_is_not_taken(edit: dict[str, Any]) -> None:
    row = hourly()
    with closing(CatalogScheduler(app=app)) as beat:
        entry = beat.all_as_schedule()["hourly"]
    PeriodicTask.objects.update(**edit)
    assert not entry.take()
    row.refresh_from_db()
    assert row.total_run_count == 0


def test_a_row_that_never_ran_is_taken_once() -> None:
    hourly()
    PeriodicTask.objects.update(last_run_at=None)
    with closing(CatalogScheduler(app=app)) as beat:
        mine, others = (beat.all_as_schedule()["hourly"] for _ in range(2))
    assert [mine.take(), others.take(), mine.take()] == [True, False, True]


def test_of_the_rows_that_come_due_while_the_broker_is_away_one_is_left_out(services: Services) -> None:
    """By a beat that has published before, and takes its connection for a good one. All of them were."""
    broker = services.redis["broker"]
    with closing(CatalogScheduler(app=app)) as beat:
        holds(beat)
        hourly("before")
        wait_until(lambda: beat.tick() >= 0 and delivered(), timeout=30, message="a row fired")
        broker.stop()
        try:
            for number in range(4):
                hourly(f"row{number}")
            wait_until(lambda: beat.tick() >= 0 and beat._ordinary_from, timeout=30, message="the failure was seen")
            passes(beat)
        finally:
            broker.start()
        before = delivered()
        wait_until(lambda: beat.tick() >= 0 and delivered() == before + 3, timeout=30, message="the others fired")
        passes(beat)
        assert delivered() == before + 3


def test_a_row_that_cannot_be_sent_holds_up_no_other() -> None:
    """A fault of its own message is no failure of the broker."""
    PeriodicTask.objects.filter(pk=hourly("bad").pk).update(queue="of-another-type")
    hourly("good")
    with closing(CatalogScheduler(app=app)) as beat, app.connection_for_write() as broker:
        broker.default_channel.client.sadd("of-another-type", "no list")
        holds(beat)
        wait_until(lambda: beat.tick() >= 0 and delivered(), timeout=30, message="the other fired")
        assert not beat._ordinary_from
        broker.default_channel.client.delete("of-another-type")


def test_a_row_that_a_read_only_broker_refuses_is_due_again() -> None:
    with closing(CatalogScheduler(app=app)) as beat, app.connection_for_write() as broker:
        holds(beat)
        client = broker.default_channel.client
        client.replicaof("127.0.0.1", "1")
        hourly()
        try:
            wait_until(lambda: beat.tick() >= 0 and beat._ordinary_from, timeout=30, message="the refusal was seen")
        finally:
            client.replicaof("NO", "ONE")
        assert PeriodicTask.objects.get(name="hourly").total_run_count == 0
        wait_until(lambda: beat.tick() >= 0 and delivered(), timeout=30, message="the row fired")
        passes(beat)
    assert delivered() == 1
