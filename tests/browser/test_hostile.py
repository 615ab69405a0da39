"""Markup in names, workers, reasons and errors is text: in lists, drawings, dialogs, exports and data."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from scheduler.models import Alert, Execution, Schedule, Tick
from tests.browser import seed
from tests.browser.seed import AT, HOSTILE
from tests.browser.watched import Watched, refused_by_policy

SHOWN = (
    "schedule/",
    "execution/",
    "tick/",
    f"timeline/?from=2027-03-27T11:59:30Z&to=2027-03-27T12:00:10Z&at={AT}",
    f"dashboard/?window=1h&at={AT}",
    "alert/",
    "instance/",
)


@pytest.fixture(autouse=True)
def hostile(transactional_db: None) -> None:
    """Two bodies that met, and one that was refused: all they are called is markup."""
    seed.fleet()
    schedule = seed.make_schedule(HOSTILE, alias="none", lock_name="hostile", once_per_tick=False, notes=HOSTILE)
    tick = seed.tick(schedule, -20, reason=HOSTILE)
    first = seed.ran(tick, "worker@1", 0.1, 6.0, error=HOSTILE)
    seed.ran(tick, "worker@2", 0.2, 5.0)
    seed.refused(tick, "worker@3", 0.3, "prevented", holder=first)
    Execution.objects.update(worker=HOSTILE, reason=HOSTILE, task_id=HOSTILE)
    Schedule.objects.update(pause_reason=HOSTILE, paused_by=HOSTILE, paused_at=seed.NOON)
    Tick.objects.update(task=HOSTILE)
    Alert.objects.create(rule="missed", subject=HOSTILE, message=HOSTILE, note=HOSTILE, handled_by=HOSTILE)


@pytest.mark.parametrize("address", SHOWN, ids=lambda address: address.split("/")[0])
def test_markup_is_shown_as_text(page: Page, watched: Watched, address: str) -> None:
    page.goto(f"/admin/aegis_scheduler/{address}")
    if not address.startswith("instance"):
        assert HOSTILE in page.evaluate("document.documentElement.textContent")
    assert page.evaluate("window.hacked") is None
    assert page.locator("script:not([src])").filter(has_text="hacked").count() == 0
    assert (refused_by_policy(page), watched.errors) == ([], [])


def test_a_mark_is_named_by_the_text(page: Page) -> None:
    page.goto(f"/admin/aegis_scheduler/{SHOWN[3]}")
    titles = page.locator("svg title").all_text_contents()
    assert any(HOSTILE in title for title in titles)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_and_the_data_are_no_pages(page: Page, form: str) -> None:
    export = page.request.get(f"/admin/aegis_scheduler/execution/export/{form}/")
    assert HOSTILE in export.text()
    assert export.headers["x-content-type-options"] == "nosniff"
    assert "html" not in export.headers["content-type"]
    data = page.request.get(f"/admin/aegis_scheduler/timeline/data/?from=2027-03-27T11:59:30Z&at={AT}")
    assert data.headers["content-type"] == "application/json"
    assert data.headers["x-content-type-options"] == "nosniff"
