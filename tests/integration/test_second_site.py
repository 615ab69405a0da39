"""Aegis' pages on a second admin site: what leads on from a page stays on that site."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import path

from tests.support.engine import make_schedule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

other = admin.AdminSite("other")
for model, page in admin.site._registry.items():
    other.register(model, type(page))
urlpatterns = [path("admin/", admin.site.urls), path("other/", other.urls)]


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("boss"))
    return client


def test_an_empty_page_leads_to_the_form_of_its_own_site(boss: Client) -> None:
    for site in ("other", "admin"):
        page = boss.get(f"/{site}/aegis_scheduler/dashboard/").content.decode()
        assert "No schedules yet" in page
        assert f'href="/{site}/aegis_scheduler/schedule/add/"' in page.split('data-live-region="notes"')[1]


def test_a_run_by_hand_is_shown_on_the_site_that_asked_for_it(boss: Client) -> None:
    schedule = make_schedule("nightly")
    answer = boss.post("/other/aegis_scheduler/schedule/run/", {"schedule": schedule.pk, "key": str(uuid4())})
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith(f"/other/aegis_scheduler/schedule/{schedule.pk}/ran/")
