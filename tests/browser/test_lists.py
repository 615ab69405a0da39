"""The lists of the admin: what a row says is seen without moving it, on a laptop."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page


@pytest.mark.parametrize("model", ["schedule", "instance"])
def test_all_columns_of_a_list_are_seen_on_a_laptop(page: Page, at: str, model: str) -> None:
    page.goto(f"/admin/aegis_scheduler/{model}/")
    widths = page.locator(".results").evaluate("(box) => [box.scrollWidth, box.clientWidth]")
    assert widths[0] <= widths[1], f"a row is {widths[0]} px wide, what is seen of it {widths[1]}"


@pytest.mark.parametrize("model", ["execution", "tick", "schedulechange"])
def test_the_filters_take_no_width_from_a_long_record(page: Page, at: str, model: str) -> None:
    page.goto(f"/admin/aegis_scheduler/{model}/")
    rows, whole = (page.locator(where).bounding_box() for where in (".results", "#changelist"))
    assert rows is not None and whole is not None
    assert rows["width"] == whole["width"]
