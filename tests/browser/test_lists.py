"""The lists of the admin: what a row says is seen without moving it, on a laptop."""

from __future__ import annotations

import pytest
from django.db.models import F, Value
from django.db.models.functions import Concat
from playwright.sync_api import Page, expect

from scheduler.models import Execution
from tests.browser.conftest import PHONE

LONG_ID = "b7d1c0de-9f3a-4d2e-8a51-0c6f3e2d1b94"


@pytest.mark.parametrize("model", ["schedule", "instance", "execution", "tick", "schedulechange"])
def test_all_columns_of_a_list_are_seen_on_a_laptop(page: Page, at: str, model: str) -> None:
    Execution.objects.update(task_id=LONG_ID, worker=Concat(Value("celery@aegis-7f9c5d8b4-"), F("worker")))
    Execution.objects.update(reason="the name is held by celery@aegis-7f9c5d8b4-worker@1 since 11:54:50")
    page.goto(f"/admin/aegis_scheduler/{model}/")
    widths = page.locator(".results").evaluate("(box) => [box.scrollWidth, box.clientWidth]")
    assert widths[0] <= widths[1], f"a row is {widths[0]} px wide, what is seen of it {widths[1]}"


def test_a_phone_shows_when_what_and_how_it_ended_and_the_page_of_a_run_its_whole_task_id(
    page: Page, at: str
) -> None:
    Execution.objects.update(task_id=LONG_ID)
    page.set_viewport_size(PHONE)
    page.goto("/admin/aegis_scheduler/execution/")
    row = page.locator("#result_list tbody tr").first
    seen = [row.locator(f".field-{name}").bounding_box() for name in ("due", "of_schedule", "came_to")]
    assert all(box is not None and box["x"] + box["width"] <= PHONE["width"] for box in seen)
    assert row.locator(f"[title='{LONG_ID}']").inner_text() == "b7d1c0de…"
    row.locator("th a").click()
    expect(page.locator(".field-task_id")).to_contain_text(LONG_ID)


@pytest.mark.parametrize("model", ["execution", "tick", "schedulechange"])
def test_the_filters_take_no_width_from_a_long_record(page: Page, at: str, model: str) -> None:
    page.goto(f"/admin/aegis_scheduler/{model}/")
    rows, whole = (page.locator(where).bounding_box() for where in (".results", "#changelist"))
    assert rows is not None and whole is not None
    assert rows["width"] == whole["width"]
