"""Rows that PostgreSQL keeps and Python cannot read: each stops itself, and nothing else."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DataError, connection
from django.test import Client
from django.urls import reverse

from aegis_site.celery import app
from scheduler import running
from scheduler.changes import Refused
from scheduler.doctor import catalog
from scheduler.healing import heal
from scheduler.minting import MOST_MISSED, mint
from scheduler.models import Schedule, Tick
from scheduler.states import TickState
from scheduler.ticker import Ticker
from tests.integration.test_ticker import QUEUE, due_schedule, queued
from tests.support.engine import database_now, make_schedule, make_tick, store

pytestmark = pytest.mark.django_db(transaction=True)

INSTANTS = "aegis_schedule_instants_in_calendar"
INFINITE = ("end_at = 'infinity'", "start_at = '-infinity'", "end_at = '20000-01-01'", "anchor = '0044-03-15 BC'")
DEEP = "[" * 3000 + "]" * 3000
NO_SUCH_MINUTE = "every_seconds = NULL, cron_expression = '61 * * * *'"
ARGUMENTS = ("args = '[1e5000]'", f"args = '{DEEP}'", "args = '\"text\"'", "kwargs = '{\"a\": -1e5000}'")
BEFORE = ("aegis_scheduler", "0014_priority_help")


def alter(change: str, name: str = "bad") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE aegis_scheduler_schedule SET {change} WHERE name = %s", [name])


def broken(name: str) -> str:
    return str(Schedule.objects.filter(name=name).values_list("broken_reason", flat=True).get())


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    with app.connection_for_write() as broker:
        broker.default_channel.client.delete(QUEUE)


@pytest.fixture
def unguarded() -> Iterator[None]:
    """Without the constraint: as if there were a value that nobody has thought of."""
    (found,) = (one for one in Schedule._meta.constraints if one.name == INSTANTS)
    with connection.schema_editor() as editor:
        editor.remove_constraint(Schedule, found)
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE aegis_scheduler_schedule CASCADE")
    with connection.schema_editor() as editor:
        editor.add_constraint(Schedule, found)


@pytest.mark.parametrize("change", INFINITE)
def test_a_row_that_cannot_be_loaded_stops_only_itself(unguarded: None, change: str) -> None:
    due_schedule("bad"), due_schedule("good")
    alter(change)
    Ticker().tick()
    assert Tick.objects.filter(schedule__name="good").exists()
    assert "DataError" in broken("bad")
    assert broken("good") == ""


@pytest.fixture
def refusing() -> Iterator[None]:
    """The ledger takes no tick of one schedule, for a reason that nobody has thought of."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE aegis_scheduler_tick ADD CONSTRAINT refuses CHECK (schedule_name <> 'bad')")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE aegis_scheduler_tick DROP CONSTRAINT refuses")


def test_a_row_whose_ticks_cannot_be_stored_stops_only_itself_and_shows_none_of_its_values(
    refusing: None, caplog: pytest.LogCaptureFixture
) -> None:
    due_schedule("bad", args=["hunter2"]), due_schedule("good")
    Ticker().tick()
    assert Tick.objects.filter(schedule__name="good").exists()
    assert broken("bad").startswith("IntegrityError") and broken("good") == ""
    assert "schedule bad cannot be read" in caplog.text
    assert "hunter2" not in caplog.text + broken("bad")


@pytest.mark.parametrize("change", [NO_SUCH_MINUTE, INFINITE[0]], ids=["cannot be read", "cannot be loaded"])
def test_broken_rows_at_the_head_of_the_queue_hold_up_nobody_behind_them(
    unguarded: None, change: str, settings: Any
) -> None:
    """They are due before all others, and more than a pass takes at once."""
    settings.AEGIS = {**settings.AEGIS, "BATCH": 2}
    bad = [f"bad-{number}" for number in range(3)]
    for name in ("good", *bad):
        due_schedule(name)
    for name in bad:
        alter(change, name)
    alter("next_fire_at = clock_timestamp() - interval '1 second'", "good")
    ticker = Ticker()
    for _ in range(2):
        ticker.tick()
    assert Tick.objects.filter(schedule__name="good").exists()
    assert [name for name in bad if not broken(name)] == [] and broken("good") == ""
    assert set(Tick.objects.values_list("schedule_name", flat=True)) == {"good"}


def test_a_broken_row_that_cannot_be_loaded_does_not_keep_others_from_healing(unguarded: None) -> None:
    due_schedule("bad"), due_schedule("good")
    alter("end_at = 'infinity'")
    Schedule.objects.update(broken_reason="was broken")
    found = heal()
    assert "DataError" in found["bad"] and found["good"] == ""
    assert broken("good") == "" and broken("bad")


def test_a_tick_that_cannot_be_loaded_does_not_keep_others_from_being_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schedule = make_schedule(queue=QUEUE)
    bad, good = make_tick(schedule, seconds_ago=2), make_tick(schedule, seconds_ago=1)
    Tick.objects.update(dispatch_at=database_now())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_scheduler_tick SET deadline = 'infinity' WHERE id = %s", [bad.pk])
    Ticker().tick()
    assert Tick.objects.filter(pk=good.pk, state=TickState.DISPATCHED).exists()
    assert queued() == 1
    assert f"tick {bad.pk} cannot be read" in caplog.text
    with pytest.raises(DataError):
        Tick.objects.get(pk=bad.pk)


@pytest.mark.parametrize("change", ARGUMENTS, ids=["digits", "levels", "no list", "object"])
def test_arguments_that_cannot_be_read_stop_only_their_row_and_no_page(change: str) -> None:
    due_schedule("bad"), due_schedule("good")
    alter(change)
    Ticker().tick()
    assert Tick.objects.filter(schedule__name="good").exists()
    assert not Tick.objects.filter(schedule__name="bad").exists()
    assert "write it anew" in broken("bad")
    client = Client()
    client.force_login(get_user_model()._default_manager.create_superuser("root", "", "x"))
    listed = client.get(reverse("admin:aegis_scheduler_schedule_changelist"), secure=True)
    assert listed.status_code == 200 and "write it anew" in listed.content.decode()
    for page in ("change", "page"):
        one = reverse(f"admin:aegis_scheduler_schedule_{page}", args=[Schedule.objects.get(name="bad").pk])
        assert client.get(one, secure=True).status_code == 200
    assert {row.name for row in catalog.read()} == {"bad", "good"}
    out = io.StringIO()
    call_command("aegis", "schedules", "list", stdout=out)
    assert "write it anew" in out.getvalue()
    with pytest.raises(Refused, match="write it anew"):
        running.ask("bad", key="k", who="ops")


def test_arguments_that_were_mended_are_read_again_at_once() -> None:
    due_schedule("bad")
    alter("args = '[1e5000]'")
    mint()
    assert broken("bad")
    alter("args = '[1]'")
    assert broken("bad") == ""
    (tick, *_) = mint().ticks
    assert tick.args == [1]


def test_more_missed_fire_times_than_a_row_can_count_stop_nothing() -> None:
    bad, _ = due_schedule("bad"), due_schedule("good")
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() - interval '100 years'")
        store(bad, activated_at=cursor.fetchone()[0])
    mint()
    assert Tick.objects.filter(schedule__name="good").exists()
    assert Tick.objects.get(schedule=bad, state=TickState.MISFIRED).missed_count == MOST_MISSED


@pytest.mark.parametrize("grace", [1e12, 1e300])
def test_a_run_by_hand_whose_deadline_could_not_be_read_is_refused(grace: float) -> None:
    make_schedule("long", misfire_grace=grace)
    with pytest.raises(Refused, match="ends beyond the calendar; give the schedule a shorter one"):
        running.ask("long", key="k", who="ops")
    assert not Tick.objects.exists()


MENDED: dict[str, Any] = {
    "end_at = 'infinity'": ("end_at", None),
    "end_at = '-infinity'": ("end_at", 1),
    "start_at = '-infinity'": ("start_at", None),
    "start_at = 'infinity'": ("start_at", 9999),
    "anchor = '10000-01-01'": ("anchor", 9999),
    "next_fire_at = 'infinity'": ("next_fire_at", None),
    "paused_at = now(), paused_until = 'infinity'": ("paused_until", None),
}


@pytest.mark.parametrize("change", MENDED)
def test_a_row_of_before_the_constraint_is_mended_by_the_migration(change: str) -> None:
    due_schedule("bad")
    call_command("migrate", *BEFORE, verbosity=0)
    try:
        alter(change)
    finally:
        call_command("migrate", verbosity=0)
    schedule = Schedule.objects.get(name="bad")
    field, year = MENDED[change]
    value = getattr(schedule, field)
    assert (value and value.year) == year
    assert schedule.next_fire_at is None and schedule.anchor is not None
