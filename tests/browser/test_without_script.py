"""Without JavaScript: what is needed can be done."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from locks import lock_backends
from scheduler.models import Schedule


@pytest.fixture
def plain(new_user_context: Any, user: Any) -> Page:
    page: Page = new_user_context(user, java_script_enabled=False).new_page()
    return page


def test_lists_forms_tables_and_dialogs_work_without_a_script(plain: Page, at: str) -> None:
    plain.goto("/admin/aegis_scheduler/schedule/")
    expect(plain.get_by_role("row").filter(has_text="cleanup")).to_have_count(1)
    plain.goto("/admin/aegis_scheduler/schedule/add/")
    plain.get_by_label("Cron").fill("30 2 * * *")
    plain.get_by_role("button", name="Show the next runs").click()
    expect(plain.locator("#next-runs tbody tr")).to_have_count(5)
    plain.goto(f"/admin/aegis_scheduler/timeline/?from=2027-03-27T11:55:00Z&to=2027-03-27T11:55:10Z&at={at}")
    plain.get_by_text("Show as table").first.click()
    expect(plain.locator("details[open] tbody tr").first).to_be_visible()


def test_a_lock_is_released_without_a_script(plain: Page, at: str) -> None:
    name = Schedule.objects.get(name="report").lock_id
    lease = lock_backends["database"].acquire(name, ttl=60)
    assert lease is not None
    plain.goto("/admin/aegis_scheduler/locks/")
    plain.get_by_role("link", name=re.compile("Release")).first.click()
    plain.get_by_label("Reason").fill("it hangs")
    plain.get_by_label("I checked the worker").check()
    plain.get_by_role("button", name=re.compile("^Release lock")).click()
    assert lock_backends["database"].inspect(name) is None
