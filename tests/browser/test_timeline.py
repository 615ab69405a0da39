"""The timeline by hand and eye: what overlaps meets and is hatched, keys move, colours change and still tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import PHONE

TIMELINE = "/admin/aegis_scheduler/timeline/?from=2027-03-27T11:55:00Z&to=2027-03-27T11:55:10Z&at="

# Contrast of two colours as WCAG defines it, of the first match of each selector.
CONTRAST = """
([mark, property]) => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ink = getComputedStyle(document.querySelector(mark))[property];
  const paper = getComputedStyle(document.body).backgroundColor;
  const [low, high] = [light(ink), light(paper)].sort((a, b) => a - b);
  return { ink, ratio: (high + 0.05) / (low + 0.05) };
}
"""
MARKS = ((".aegis-mark.aegis-ok-solid", "fill"), (".aegis-ink-bad", "stroke"))


@pytest.fixture
def wide(page: Page, at: str) -> Page:
    """With runs that met nobody as well."""
    page.goto(TIMELINE.replace("11:55:00", "11:44:00") + at)
    return page


@pytest.fixture
def timeline(page: Page, at: str) -> Page:
    page.goto(TIMELINE + at)
    return page


def test_bars_of_an_overlap_meet_and_are_hatched(timeline: Page) -> None:
    hatched = timeline.locator("g[role=list]:not([aria-label=Overlaps]) rect.aegis-bad-hatch")
    boxes = [hatched.nth(number).bounding_box() for number in range(hatched.count())]
    first, second = (box for box in boxes if box is not None)
    assert first["x"] < second["x"] + second["width"]
    assert second["x"] < first["x"] + first["width"]
    assert "bad-hatch" in (hatched.first.get_attribute("fill") or "")
    assert timeline.get_by_role("list", name="Overlaps").get_by_role("link").count() == 1


def test_a_chart_is_one_tab_stop_and_arrows_move(timeline: Page) -> None:
    chart = "[data-aegis-chart]"
    assert timeline.locator(f"{chart} a[tabindex='0']").count() == 1
    timeline.locator(f"{chart} a[tabindex='0']").focus()
    first = focused(timeline)
    timeline.keyboard.press("ArrowRight")
    second = focused(timeline)
    assert first != second
    timeline.keyboard.press("Escape")
    assert timeline.evaluate("document.activeElement.getAttribute('role')") == "region"
    timeline.keyboard.press("Tab")
    assert focused(timeline) == second
    timeline.keyboard.press("Enter")
    timeline.wait_for_url("**selected=*")
    assert timeline.get_by_role("heading", level=2).filter(has_text="verlap").count() == 1


def focused(page: Page) -> str:
    found: str = page.evaluate("document.activeElement.getAttribute('href') || ''")
    return found


def test_marks_change_with_the_theme_and_stand_out(wide: Page) -> None:
    seen = {theme: [wide.evaluate(CONTRAST, mark) for mark in MARKS] for theme in themes(wide)}
    for light, dark in zip(seen["light"], seen["dark"], strict=True):
        assert light["ink"] != dark["ink"]
        assert min(light["ratio"], dark["ratio"]) >= 3


def themes(page: Page) -> Iterator[str]:
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        page.evaluate(
            "Promise.allSettled(document.getAnimations().map((fading) => fading.finished)).then(() => null)"
        )
        yield theme


def test_patterns_remain_where_colours_are_forced(wide: Page) -> None:
    wide.emulate_media(forced_colors="active")
    fills = wide.evaluate(
        "['.aegis-mark.aegis-ok-solid', '.aegis-mark.aegis-bad-hatch'].map("
        "(mark) => getComputedStyle(document.querySelector(mark)).fill)"
    )
    assert "url(" not in fills[0]
    assert "url(" in fills[1]


@pytest.mark.parametrize(
    "page_of",
    [
        "timeline/?from=2027-03-27T11:34:00Z&to=2027-03-27T11:55:01Z&at=",
        "dashboard/?window=1h&at=",
        "strategies/?window=1h&at=",
    ],
)
def test_the_last_label_of_an_axis_of_time_is_whole(page: Page, at: str, page_of: str) -> None:
    page.goto("/admin/aegis_scheduler/" + page_of + at.replace("12:00:00", "12:00:01"))
    beyond = page.evaluate(
        "[...document.querySelectorAll('.aegis-chart')].map((chart) =>"
        "Math.max(...[...chart.querySelectorAll('text')]"
        ".map((label) => label.getBoundingClientRect().right)) - chart.getBoundingClientRect().right)"
    )
    assert beyond
    assert max(beyond) <= 0


def test_on_a_phone_the_chart_scrolls_and_takes_the_focus(timeline: Page) -> None:
    timeline.set_viewport_size(PHONE)
    region = timeline.get_by_role("region", name="Executions by worker")
    region.focus()
    assert timeline.evaluate("document.activeElement.scrollWidth > document.activeElement.clientWidth")
