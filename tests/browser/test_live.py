"""Live pages: what is new appears by itself, nobody is disturbed, and a server that is gone is told."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Request, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser import seed
from tests.support.engine import database_now, make_schedule, make_tick

OVERVIEW = "/admin/aegis_scheduler/dashboard/?window=1h"
SOON = 12_000  # milliseconds: a few looks of two seconds, on a busy machine


@pytest.fixture(autouse=True)
def shortest_interval(settings: Any) -> None:
    settings.AEGIS = {"LIVE_INTERVAL": 0.1}  # the floor is two seconds


@pytest.fixture
def asked(page: Page) -> list[Request]:
    """The looks for news of this page."""
    found: list[Request] = []
    page.on("request", lambda request: found.append(request) if "x-aegis-live" in request.headers else None)
    return found


@pytest.fixture
def overview(page: Page, watched: Any, asked: list[Request]) -> Page:
    happens("zebra")
    page.goto(OVERVIEW)
    expect(state(page)).to_have_text("Live: every 2 s")
    return page


def state(page: Page) -> Any:
    return page.locator("[data-aegis-live-state]")


def happens(name: str) -> None:
    """A schedule with one tick that was executed a moment ago."""
    tick = make_tick(make_schedule(name), seconds_ago=5, state="closed", outcome="executed", closed_at=database_now())
    seed.ran(tick, "worker@0", 0.1, 2.0)


def test_what_is_new_appears_and_focus_and_scroll_stay(overview: Page) -> None:
    link = overview.locator("[data-live-region=body] a", has_text="zebra").first
    link.focus()
    overview.evaluate("window.kept = true; document.querySelector('[data-live-region=body] details').open = true")
    happens("giraffe")
    expect(overview.locator("[data-live-region=body]").get_by_text("giraffe").first).to_be_attached(timeout=SOON)
    assert overview.evaluate("window.kept")
    assert overview.evaluate("[document.activeElement.tagName, document.activeElement.textContent]") == ["A", "zebra"]
    assert overview.locator("[data-live-region=body] details").first.get_attribute("open") is not None


def test_nothing_new_is_answered_without_drawing(overview: Page) -> None:
    with overview.expect_response(lambda answer: answer.status == 304, timeout=SOON) as found:
        pass
    assert found.value.headers["vary"].count("X-Aegis-Live") == 1


def test_ticked_rows_and_forms_hold_it_back(overview: Page, asked: list[Request]) -> None:
    # In one step: a look that comes in between would draw the page without it.
    overview.evaluate(
        """document.querySelector('[data-live-region=body]').insertAdjacentHTML('afterbegin',
            '<form><input type=checkbox checked aria-label=row><input aria-label=why></form>')
        document.querySelector('[aria-label=row]').dispatchEvent(new Event('change', { bubbles: true }))"""
    )
    expect(state(overview)).to_have_text("Live: waits while rows are ticked", timeout=SOON)
    overview.get_by_label("row").uncheck()
    overview.get_by_label("why").focus()
    expect(state(overview)).to_have_text("Live: waits while a form is used")
    held = len(asked)
    overview.wait_for_timeout(2_500)  # longer than one look takes to come
    assert len(asked) == held
    overview.get_by_label("why").blur()
    expect(state(overview)).to_have_text("Live: every 2 s")


def test_a_hidden_tab_asks_nothing_and_comes_back(overview: Page, asked: list[Request]) -> None:
    hide = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => %s })"
    overview.evaluate(hide % "true")
    overview.wait_for_timeout(2_500)  # a look that was under way
    held = len(asked)
    overview.wait_for_timeout(2_500)
    assert len(asked) == held
    overview.evaluate(hide % "false")
    with overview.expect_request(lambda request: "x-aegis-live" in request.headers, timeout=SOON):
        overview.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_it_is_switched_off_for_the_tab_and_on_again(overview: Page) -> None:
    overview.get_by_role("button", name="Pause").click()
    expect(state(overview)).to_have_text("Live: off")
    overview.reload()
    expect(state(overview)).to_have_text("Live: off")
    overview.get_by_role("button", name="Resume").click()
    expect(state(overview)).to_have_text("Live: every 2 s")


def test_a_page_that_was_left_alone_asks_whether_to_go_on(page: Page, watched: Any) -> None:
    page.clock.install()
    page.goto(OVERVIEW)
    page.clock.fast_forward(15 * 60 * 1000 + 5_000)
    expect(state(page)).to_have_text("Paused after 15 minutes without input, resume?")
    page.get_by_role("button", name="Resume").click()
    expect(state(page)).to_have_text("Live: every 2 s")


def test_a_server_that_is_gone_is_told_and_its_return_heals(overview: Page, context: BrowserContext) -> None:
    context.set_offline(True)
    expect(state(overview)).to_contain_text("Stale since ", timeout=SOON)
    expect(state(overview)).to_contain_text(", retrying")
    assert overview.locator("[data-live-region=body]").get_by_text("zebra").count()
    happens("giraffe")
    context.set_offline(False)
    expect(overview.locator("[data-live-region=body]").get_by_text("giraffe").first).to_be_attached(timeout=SOON)
    expect(state(overview)).to_have_text("Live: every 2 s")


def test_a_frozen_page_is_not_live(page: Page, at: str) -> None:
    page.goto(f"{OVERVIEW}&at={at}")
    assert page.locator("[data-aegis-live]").count() == 0


@pytest.fixture
def without_script(new_user_context: Any, user: Any) -> Page:
    page: Page = new_user_context(user, java_script_enabled=False).new_page()
    return page


def test_without_a_script_nothing_changes(
    without_script: Page, live_server: LiveServer, transactional_db: None
) -> None:
    happens("zebra")
    without_script.goto(OVERVIEW)
    assert not without_script.locator("[data-aegis-live]").is_visible()
    assert without_script.locator("[data-live-region=body]").get_by_text("zebra").count()
