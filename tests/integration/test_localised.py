"""Pages of a site in German that groups digits: numbers in links, fields stay as browsers read them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scheduler.models import AlertRule, Instance
from tests.browser import seed
from tests.support.engine import database_now, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

GROUPED = re.compile(r"\b(?:1[.,]234|1[.,]235|5[.,]678|6[.,]789|4[.,]321|9[.,]876|7[.,]777)\b")  # the ids below


@pytest.fixture
def boss(client: Client, settings: Any) -> Client:
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = "de", True
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    client.force_login(User.objects.create_superuser("boss"))
    return client


def page_of(client: Client, name: str, *args: Any, **query: Any) -> str:
    response = client.get(reverse(f"admin:aegis_scheduler_{name}", args=args), query)
    assert response.status_code == 200, name
    page: str = response.content.decode()
    assert 'lang="de"' in page
    return page[page.index('id="main"') :]


def test_ids_in_links_and_fields_are_not_grouped(boss: Client) -> None:
    schedule, other = (make_schedule(f"s{pk}", id=pk, lock_name="shared") for pk in (1234, 1235))
    tick = make_tick(schedule, id=5678, state="closed", outcome="executed", closed_at=database_now())
    ran = seed.ran(tick, "worker@1", 0.1, 5.0)
    type(ran).objects.filter(pk=ran.pk).update(id=4321, token=7777)
    running = seed.ran(make_tick(schedule, id=6789, state="started"), "worker@1", 0.1, None)
    type(running).objects.filter(pk=running.pk).update(id=9876, heartbeat_at=database_now())
    Instance.objects.create(kind="worker", name="worker@1", host="a", pid=1, heartbeat_at=database_now())
    for verb in ("pause", "run", "strategy"):
        page = page_of(boss, f"schedule_{verb}", schedule=[schedule.pk, other.pk])
        assert page.count('name="schedule" value="1234"') == page.count('name="schedule" value="1235"') >= 1
        assert not GROUPED.findall(page)
    page = page_of(boss, "schedule_page", schedule.pk)
    assert "?tick__id__exact=5678" in page and "?schedule__id__exact=1234" in page and not GROUPED.findall(page)
    for name in ("dashboard_changelist", "workers_changelist", "locks_changelist", "timeline_changelist"):
        assert not GROUPED.findall(page_of(boss, name))
    assert "9876#selected" in page_of(boss, "workers_changelist")


def test_a_threshold_is_saved_as_it_was(boss: Client) -> None:
    AlertRule.objects.create(key="clock", threshold=12.5)
    AlertRule.objects.create(key="headroom", threshold=1234.5)
    page = page_of(boss, "alert_rules")
    fields = [dict(re.findall(r'([\w-]+)="([^"]*)"', field)) for field in re.findall(r"<input[^>]*>", page)]
    given = {field["name"]: field.get("value", "") for field in fields if field.get("type") == "number"}
    assert (given["clock-threshold"], given["headroom-threshold"]) == ("12.5", "1234.5")
    on = dict.fromkeys((f"{key}-enabled" for key in AlertRule.objects.values_list("key", flat=True)), "on")
    boss.post(reverse("admin:aegis_scheduler_alert_rules"), {**given, **on})
    assert {*AlertRule.objects.filter(threshold__isnull=False).values_list("key", "threshold")} == {
        ("clock", 12.5),
        ("headroom", 1234.5),
    }


def test_the_form_of_a_schedule_fills_its_fields_for_browsers(boss: Client) -> None:
    schedule = make_schedule("report", id=1234, misfire_grace=1234.5, cron_expression="* * * * *")
    page = page_of(boss, "schedule_change", schedule.pk)
    assert 'value="1234.5"' in page and 'value="1970-01-01T00:00:00"' in page
