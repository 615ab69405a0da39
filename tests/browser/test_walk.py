"""Every page of the project, as a person meets it: whole, alone, readable by everybody, on a phone as well."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from playwright.sync_api import Page

from scheduler.dashboard.page import PAGES
from scheduler.models import Alert, Execution, Schedule
from tests.browser.conftest import LAPTOP, PHONE
from tests.browser.watched import (
    Watched,
    inaccessible,
    inaccessible_in_the_dark,
    refused_by_policy,
    wider_than_the_screen,
)

APPS = ("aegis_scheduler", "aegis_locks")
REGISTERED = [model for model in admin.site._registry if model._meta.app_label in APPS]


def path_of(model: type[Model], view: str = "changelist") -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}")


def named(model: type[Model]) -> str:
    return str(model._meta.model_name)


ADDRESSES = {named(model): path_of(model) for model in REGISTERED}
ADDRESSES["schedule_add"] = "/admin/aegis_scheduler/schedule/add/"
ADDRESSES["index"] = "/admin/"
ADDRESSES["apps"] = "/admin/aegis_scheduler/"


def rows_pages() -> dict[str, str]:
    """Pages of single rows and pages that ask before something is done, for the rows that are seeded."""
    schedule = Schedule.objects.get(name="cleanup").pk
    refused = Execution.objects.filter(state="prevented").latest("id").pk
    alert = Alert.objects.create(rule="missed", subject="report", message="1 fire times missed within 15 minutes.").pk
    return {
        "schedule_page": f"/admin/aegis_scheduler/schedule/{schedule}/",
        "schedule_form": f"/admin/aegis_scheduler/schedule/{schedule}/change/",
        "pause": f"/admin/aegis_scheduler/schedule/pause/?ids={schedule}",
        "run": f"/admin/aegis_scheduler/schedule/run/?ids={schedule}",
        "execution_page": f"/admin/aegis_scheduler/execution/{refused}/change/",
        "alert_page": f"/admin/aegis_scheduler/alert/{alert}/",
        "alert_rules": "/admin/aegis_scheduler/alert/rules/",
        "lock_release": "/admin/aegis_scheduler/locks/release/?alias=database&name=lock.invoices"
        "&lease=00000000-0000-0000-0000-000000000001",
    }


ROWS_PAGES = (
    "schedule_page", "schedule_form", "pause", "run", "execution_page", "alert_page", "alert_rules", "lock_release",
)  # fmt: skip


def test_every_page_of_the_dashboard_is_registered() -> None:
    assert [named(model) for model in PAGES if model not in admin.site._registry] == []


@pytest.mark.parametrize("name", [*ADDRESSES, *ROWS_PAGES])
def test_a_page_is_whole_alone_and_accessible(page: Page, watched: Watched, at: str, name: str) -> None:
    kept = f"?at={at}" if name in {named(model) for model in PAGES} else ""
    response = page.goto(ADDRESSES[name] + kept if name in ADDRESSES else rows_pages()[name])
    assert response is not None and response.status == 200
    assert page.locator("h1").count() == 1
    if name != "index":
        assert page.locator(".breadcrumbs a").first.inner_text() == "Home"
    assert refused_by_policy(page) == []
    assert watched.errors == []
    assert watched.strangers == []
    assert inaccessible(page) == []
    assert inaccessible_in_the_dark(page) == []
    page.set_viewport_size(PHONE)
    assert wider_than_the_screen(page) <= 0


@pytest.mark.parametrize("name", [named(model) for model in PAGES if model in admin.site._registry])
def test_a_page_without_rows_says_so_and_is_whole(page: Page, watched: Watched, name: str) -> None:
    response = page.goto(ADDRESSES[name])
    assert response is not None and response.status == 200
    assert page.locator("h1").count() == 1
    assert (refused_by_policy(page), watched.errors, watched.strangers) == ([], [], [])
    page.set_viewport_size({**LAPTOP, "width": 320})
    assert wider_than_the_screen(page) <= 0
