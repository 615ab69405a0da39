"""Held locks by eye and hand: the countdown goes on, and nothing is released by a careless click."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import pytest
from playwright.sync_api import Page, expect

from locks import Lease, lock_backends
from tests.support.engine import make_schedule

LOCKS = "/admin/aegis_scheduler/locks/"


@pytest.fixture
def lease(transactional_db: None) -> Iterator[Lease]:
    """A lease that nobody renews, of a lock name that a schedule has."""
    make_schedule("report", lock_name="report")
    found = lock_backends["database"].acquire("report", ttl=60)
    assert found is not None
    yield found
    lock_backends["database"].release(found)


def seconds(text: str) -> int:
    found = re.fullmatch(r"in (\d+) s", text.strip())
    assert found, text
    return int(found[1])


def test_the_countdown_follows_the_servers_clock(page: Page, lease: Lease) -> None:
    page.goto(LOCKS)
    row = page.get_by_role("row").filter(has_text="report")
    countdown, bar = row.locator("[data-aegis-until]"), row.locator("[data-aegis-lease]")
    before, wide = seconds(countdown.inner_text()), int(bar.get_attribute("width") or 0)
    page.wait_for_timeout(2_100)  # what is tested is that time passes
    assert before > seconds(countdown.inner_text()) > 0
    assert int(bar.get_attribute("width") or 0) <= wide
    assert countdown.get_attribute("aria-hidden") == "true"
    said = row.locator("time").last.get_attribute("datetime")
    assert said and datetime.fromisoformat(said).tzinfo is not None


def test_the_button_waits_for_reason_and_checkbox(page: Page, lease: Lease) -> None:
    page.goto(LOCKS)
    page.get_by_role("link", name=re.compile("Release")).first.click()
    button = page.get_by_role("button", name=re.compile("^Release lock report"))
    expect(button).to_be_disabled()
    page.get_by_label("Reason").fill("it hangs")
    expect(button).to_be_disabled()
    page.get_by_label("I checked the worker").check()
    expect(button).to_be_enabled()
    button.click()
    expect(page.get_by_role("row").filter(has_text="report")).to_have_count(0)
    assert lock_backends["database"].inspect("report") is None
