"""Pages of a project whose TIME_ZONE is not UTC: what says UTC is UTC, and no instant is too far away to be shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from scheduler.models import Schedule
from scheduler.ticker import Ticker
from tests.integration.test_admin import ADD, CHANGE, PREVIEW, boss, filled, problems  # noqa: F401
from tests.support.engine import database_now, make_schedule, make_tick, store

pytestmark = pytest.mark.django_db(transaction=True)

EAST, WEST = "Asia/Tokyo", "America/New_York"
FOR_EVER = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
PAGE = "admin:aegis_scheduler_schedule_page"
LIST = "admin:aegis_scheduler_schedule_changelist"
OVERVIEW = "admin:aegis_scheduler_dashboard_changelist"


@pytest.fixture(params=[EAST, WEST])
def zone(request: Any, settings: Any) -> str:
    settings.TIME_ZONE = request.param
    return str(request.param)


@pytest.fixture
def viewer() -> Client:
    client = Client()
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_schedule"))
    client.force_login(user)
    return client


def once(**changes: Any) -> dict[str, Any]:
    return filled(cron_expression="", **{"once_at": "2099-01-31T06:00:00", **changes})


def test_the_form_reads_and_shows_its_instants_in_utc(zone: str, boss: Client, viewer: Client) -> None:  # noqa: F811
    end = {"end_at": "2100-01-01T00:00:00"}
    assert boss.post(reverse(ADD), once(**end)).status_code == 302
    schedule = Schedule.objects.get()
    assert schedule.once_at == datetime(2099, 1, 31, 6, tzinfo=UTC)
    shown = boss.get(reverse(CHANGE, args=[schedule.pk]))
    page = shown.content.decode()
    assert 'value="2099-01-31T06:00:00"' in page and 'value="1970-01-01T00:00:00"' in page
    assert all(f"{label} (UTC):" in page for label in ("Once at", "Start at", "End at", "Anchor"))
    assert '<time datetime="2099-01-31T06:00:00+00:00">2099-01-31 06:00:00<' in page
    read = viewer.get(reverse(CHANGE, args=[schedule.pk])).content.decode()
    assert "2099-01-31 06:00:00" in read and "once at (utc)" in read.lower()
    again = boss.post(reverse(CHANGE, args=[schedule.pk]), once(once_at="2099-01-31T06:01:00", **end, _preview="1"))
    form = again.context["adminform"].form
    assert "once_at" in form.changed_data and "end_at" not in form.changed_data


def test_columns_of_utc_hold_utc(zone: str, boss: Client) -> None:  # noqa: F811
    schedule = make_schedule("report")
    tick = make_tick(
        schedule, fire_time=datetime(2027, 3, 27, 12, 0, 1, tzinfo=UTC), state="closed", outcome="executed"
    )
    page = boss.get(reverse(PAGE, args=[schedule.pk])).content.decode()
    assert ">27 Mar 12:00:01<" in page
    row = boss.get(reverse("admin:aegis_scheduler_tick_change", args=[tick.pk])).content.decode()
    assert "2027-03-27 12:00:01" in row and "Fire time (UTC)" in row
    listed = boss.get(reverse("admin:aegis_scheduler_tick_changelist")).content.decode()
    assert "2027-03-27 12:00:01" in listed and "Fire time (UTC)" in listed


@pytest.mark.parametrize("at", ["9999-12-31T23:59", "3000-01-01T00:00", "0001-01-01T00:00", "9999-12-31T23:59-05:00"])
@pytest.mark.parametrize("field", ["once_at", "end_at"])
def test_an_instant_at_the_end_of_the_calendar_is_refused(zone: str, boss: Client, field: str, at: str) -> None:  # noqa: F811
    given = once(**{field: at}, time_zone="Europe/Berlin")
    told = problems(boss.post(reverse(ADD), given))
    assert {*told} == {field}
    assert at[:16] in told[field] and "give a year from 1900 to 2999" in told[field]
    assert boss.post(reverse(ADD), {**given, "_preview": "1"}).status_code == 200
    assert boss.post(reverse(PREVIEW), given).status_code == 200


@pytest.mark.parametrize("until", ["9999-12-31T23:59", "0001-01-01T00:00"])
def test_a_pause_does_not_end_at_the_end_of_the_calendar(zone: str, boss: Client, until: str) -> None:  # noqa: F811
    schedule = make_schedule("report")
    address = reverse("admin:aegis_scheduler_schedule_pause")
    asked = boss.post(address, {"schedule": schedule.pk, "reason": "r", "until": until})
    assert asked.status_code == 200 and "give a year from 1900 to 2999" in asked.content.decode()
    schedule.refresh_from_db()
    assert schedule.paused_at is None


FAR: dict[str, dict[str, Any]] = {
    "once": {"once_at": FOR_EVER},
    "end": {"end_at": FOR_EVER, "every_seconds": 60},
    "anchor": {"anchor": FOR_EVER, "every_seconds": 60},
}


@pytest.mark.parametrize("far", FAR)
def test_a_row_that_was_stored_so_is_told_on_every_page(zone: str, boss: Client, viewer: Client, far: str) -> None:  # noqa: F811
    schedule = make_schedule("report", time_zone="Europe/Berlin", **FAR[far])
    store(schedule, next_fire_at=FOR_EVER)
    for address in (reverse(PAGE, args=[schedule.pk]), reverse(LIST)):
        assert "9999-12-31T23:59:00+00:00 is too far away" in boss.get(address).content.decode()
    for client in (boss, viewer):
        assert client.get(reverse(CHANGE, args=[schedule.pk])).status_code == 200
    assert 'value="9999-12-31T23:59:00"' in boss.get(reverse(CHANGE, args=[schedule.pk])).content.decode()
    assert boss.get(reverse(OVERVIEW)).status_code == 200
    store(schedule, next_fire_at=None)
    Ticker().tick()
    schedule.refresh_from_db()
    assert "is too far away; give a year from 1900 to 2999" in schedule.broken_reason


def test_a_pause_that_was_stored_so_is_shown_as_one_without_an_end(zone: str, boss: Client) -> None:  # noqa: F811
    store(make_schedule("report"), paused_at=database_now(), paused_until=FOR_EVER)
    store(make_schedule("other"), paused_at=database_now(), paused_until=database_now() + timedelta(days=400))
    page = re.sub(r"<[^>]+>", "", boss.get(reverse(OVERVIEW)).content.decode())
    assert "report until it is resumed" in page
    assert f" {(database_now() + timedelta(days=400)).year} " in page
    assert boss.get(reverse(LIST)).status_code == 200
