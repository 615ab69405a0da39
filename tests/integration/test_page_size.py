"""Pages of a filled ledger: the window is shown whole, and how often the database is asked does not grow with it."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scheduler.models import Execution, Schedule, SummedSlice, Tick
from tests.support.pages import url

pytestmark = pytest.mark.django_db

PAGES = {
    "dashboard": 30, "strategies": 24, "timeline": 20, "workers": 14, "failurematrix": 10, "tick": 16,
    "execution": 16, "schedule": 26,
}  # fmt: skip


@pytest.fixture
def administrator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("admin", "a@example.com", "x"))
    return client


def fill(executions: int) -> None:
    call_command("aegis", "fill", executions=executions, stdout=StringIO(), stderr=StringIO())


def queries(client: Client, page: str) -> int:
    asked = {"window": "24h"} if page in ("dashboard", "strategies") else {}
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url(f"{page}_changelist", **asked)).status_code == 200
    return len(captured)


def test_twenty_thousand_rows_are_asked_for_no_more_often_than_a_few(administrator: Client) -> None:
    fill(200)
    few = {page: queries(administrator, page) for page in PAGES}
    call_command("aegis", "fill", empty=True, stdout=StringIO())
    fill(20_000)
    assert abs(Execution.objects.count() - 20_000) < 500
    many = {page: queries(administrator, page) for page in PAGES}
    assert {page: (few[page], n) for page, n in many.items() if n > max(few[page] + 2, 0) or n > PAGES[page]} == {}


def test_a_day_is_shown_whole_and_the_same_with_and_without_sums(
    administrator: Client, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    fill(20_000)
    at = Tick.objects.latest("fire_time").fire_time.isoformat()
    assert SummedSlice.objects.count() > 280

    def figures() -> Any:
        told = administrator.get(url("dashboard_data", window="24h", at=at)).json()
        return {name: told[name] for name in ("window", "notes", "total", "ticks", "strategies", "schedules")}

    summed = figures()
    assert summed["notes"] == []
    assert summed["total"]["ticks"] == Tick.objects.count() - 1, "the last one is at the end of the window"
    assert summed["total"]["overlaps_proven"] > 100
    SummedSlice.objects.all().delete()
    assert figures() == summed


def test_what_was_filled_can_be_taken_away() -> None:
    fill(300)
    assert {one.enabled for one in Schedule.objects.all()} == {False}
    call_command("aegis", "fill", empty=True, stdout=StringIO())
    assert not Tick.objects.exists() and not Execution.objects.exists() and not Schedule.objects.exists()
