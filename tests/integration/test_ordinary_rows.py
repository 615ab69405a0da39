"""Ordinary django-celery-beat rows that cannot be read: each is left out and named, and stops nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask
from django_celery_beat.utils import NEVER_CHECK_TIMEOUT

from aegis_site.celery import app
from locks import Level
from scheduler.beat import CatalogScheduler
from scheduler.doctor.ordinary import judge
from scheduler.models import Tick
from tests.integration.test_ticker import due_schedule, empty_queue  # noqa: F401
from tests.support import wait_until
from tests.support.engine import database_now

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "aegis-test-ordinary-rows"


def ordinary(name: str, **fields: object) -> PeriodicTask:
    every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    given = {"interval": every, "last_run_at": database_now() - timedelta(hours=1), **fields}
    return PeriodicTask.objects.create(name=name, task="no.worker.takes.it", queue=QUEUE, **given)


def change(table: str, how: str, pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE django_celery_beat_{table} SET {how} WHERE id = %s", [pk])


def without_a_schedule() -> None:
    change("periodictask", "interval_id = NULL", ordinary("bad").pk)


def at_infinity() -> None:
    clocked = ClockedSchedule.objects.create(clocked_time=database_now())
    ordinary("bad", interval=None, clocked=clocked, one_off=True)
    change("clockedschedule", "clocked_time = '-infinity'", clocked.pk)


def in_no_zone() -> None:
    crontab = CrontabSchedule.objects.create(minute="*")
    ordinary("bad", interval=None, crontab=crontab)
    change("crontabschedule", "timezone = 'Mars/Phobos'", crontab.pk)


def on_the_30th_of_february() -> None:
    crontab = CrontabSchedule(minute="*", day_of_month="30", month_of_year="2")
    crontab.full_clean()
    crontab.save()
    ordinary("bad", interval=None, crontab=crontab)


def in_millennia(name: str) -> None:
    """A timedelta holds that, and the calendar does not."""
    ordinary(name, interval=IntervalSchedule.objects.create(every=5_000_000, period="days"))


BAD: dict[str, Callable[[], object]] = {
    "headers that are null": lambda: ordinary("bad", headers="null"),
    "headers that are a list": lambda: ordinary("bad", headers="[]"),
    "too long an interval": lambda: ordinary(
        "bad", interval=IntervalSchedule.objects.create(every=1_000_000_000, period="days")
    ),
    "no schedule": without_a_schedule,
    "an infinite last run": lambda: change("periodictask", "last_run_at = 'infinity'", ordinary("bad").pk),
    "an infinite instant": at_infinity,
    "an unknown zone": in_no_zone,
    "30 February": on_the_30th_of_february,
    "an interval of millennia": lambda: in_millennia("bad"),
}


@pytest.fixture(autouse=True)
def broker_is_empty() -> None:
    with app.connection_for_write() as broker:
        broker.default_channel.client.delete(QUEUE)


def delivered() -> int:
    with app.connection_for_write() as broker:
        return int(broker.default_channel.client.llen(QUEUE))


@pytest.mark.parametrize("bad", BAD)
def test_a_row_that_cannot_be_read_is_left_out_and_stops_no_other(bad: str, caplog: pytest.LogCaptureFixture) -> None:
    BAD[bad]()
    ordinary("good")
    due_schedule("exclusive")

    with closing(CatalogScheduler(app=app)) as beat:

        def fired() -> bool:
            beat.tick()
            return delivered() > 0

        wait_until(fired, timeout=30, message="the good row fired")
        wait_until(lambda: beat.tick() >= 0 and Tick.objects.exists(), timeout=30, message="the catalog went on")
        assert "good" in beat.schedule
    (told,) = judge()
    assert told.level is Level.FAIL and told.sentence.startswith("bad: a row of django-celery-beat")
    assert "ordinary row 'bad' cannot be read and is left out" in caplog.text


def test_a_row_that_cannot_say_when_it_runs_next_is_named_once_and_stands_behind_all_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Celery before 5.7 asks without a guard, in each pass, and a row that is asked holds up those behind it."""
    in_millennia("bad")
    with closing(CatalogScheduler(app=app)) as beat:
        entry = beat.all_as_schedule()["bad"]
    assert [entry.is_due() for _ in range(3)] == [(False, NEVER_CHECK_TIMEOUT)] * 3
    assert caplog.text.count("ordinary row 'bad'") == 1


def test_a_database_that_is_away_is_no_fault_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary("good", expires=database_now() - timedelta(hours=1))
    with closing(CatalogScheduler(app=app)) as beat:
        entry = beat.all_as_schedule()["good"]

    def fails(self: PeriodicTask) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(PeriodicTask, "save", fails)
    with pytest.raises(OperationalError):
        entry.is_due()


def test_what_celerys_settings_name_is_stored_by_the_first_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(app.conf.beat_schedule, "theirs", {"task": "no.worker.takes.it", "schedule": 60.0})
    with closing(CatalogScheduler(app=app)) as beat:
        wait_until(
            lambda: beat.tick() >= 0 and PeriodicTask.objects.filter(name="theirs").exists(),
            timeout=30, message="it was stored",
        )  # fmt: skip
        assert "theirs" in beat.schedule


def test_a_beat_stores_what_its_settings_name_when_it_starts_and_not_hours_later_when_it_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(CatalogScheduler(app=app)) as fires, closing(CatalogScheduler(app=app)) as stands_by:
        wait_until(lambda: fires.tick() >= 0 and fires._lease, timeout=30, message="a beat held the lease")
        monkeypatch.setitem(app.conf.beat_schedule, "theirs", {"task": "no.worker.takes.it", "schedule": 60.0})
        stands_by.tick()
        assert PeriodicTask.objects.filter(name="theirs").exists() and stands_by._lease is None
        wait_until(lambda: fires.tick() >= 0 and "theirs" in fires.schedule, timeout=30, message="the other heard")

        PeriodicTask.objects.get(name="theirs").delete()
        fires.close()
        wait_until(lambda: stands_by.tick() >= 0 and stands_by._lease, timeout=30, message="it took over")
        assert not PeriodicTask.objects.filter(name="theirs").exists()


def test_a_fault_that_no_row_is_known_by_stops_ordinary_rows_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: CatalogScheduler) -> list[PeriodicTask]:
        raise RuntimeError("nobody has thought of this")

    monkeypatch.setattr(CatalogScheduler, "enabled_models", fails)
    due_schedule("exclusive")
    with closing(CatalogScheduler(app=app)) as beat:
        wait_until(lambda: beat.tick() >= 0 and Tick.objects.exists(), timeout=30, message="the catalog went on")
    assert "ordinary rows left out of this pass" in caplog.text
