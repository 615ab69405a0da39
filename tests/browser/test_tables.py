"""Tables longer or wider than the screen: their heads stay in sight, and what differs is told at a glance."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import LAPTOP, PHONE

STRATEGIES = "/admin/aegis_scheduler/strategies/?window=24h&at="
MATRIX = "/admin/aegis_scheduler/failurematrix/"

# How far heads and names stand from the corner of what scrolls, once it has been scrolled both ways.
STAYED = """
(box) => {
  box.scrollTo(120, 900);
  const at = (element) => element.getBoundingClientRect();
  const [all, head, name] = [box, box.querySelector("thead th"), box.querySelectorAll("tbody th")[3]].map(at);
  return { down: box.scrollTop, head: head.top - all.top, name: name.left - all.left };
}
"""
GROUND = "(cell) => getComputedStyle(cell).backgroundColor"


@pytest.mark.parametrize("screen", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_heads_and_names_of_the_matrix_stay_in_sight(page: Page, at: str, screen: Any) -> None:
    page.set_viewport_size(screen)
    page.goto(MATRIX)
    region = page.get_by_role("region", name="What breaks each lock, table")
    box = region.bounding_box()
    assert box is not None and box["height"] <= screen["height"]
    stayed = region.evaluate(STAYED)
    assert stayed["down"] == 900
    assert abs(stayed["head"]) <= 1
    assert abs(stayed["name"]) <= 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_covered_and_what_is_not_stand_on_other_grounds(page: Page, at: str, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    page.goto(MATRIX)
    answers = ("Covered", "Guard writes", "Not covered", "Not applicable")
    cells = {word: page.locator("td").filter(has=page.get_by_text(word, exact=True)).first for word in answers}
    assert len({cell.evaluate(GROUND) for cell in cells.values()}) == len(answers)


@pytest.mark.parametrize(
    ("address", "region"),
    [("execution/", ".results"), ("strategies/?window=24h&at={at}", ".aegis-scroll:has(> .aegis-table)")],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_edge_with_more_beyond_it_is_shaded(page: Page, at: str, theme: Any, address: str, region: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size(PHONE)
    page.goto("/admin/aegis_scheduler/" + address.format(at=at))
    box = page.locator(region).first
    box.evaluate("(box) => { box.firstElementChild.style.visibility = 'hidden'; }")
    first, last = edges(page, box, 0), edges(page, box, 10_000)
    assert first["left"] == last["right"], "nothing is beyond these"
    assert first["right"] != first["left"]
    assert last["left"] != last["right"]


def edges(page: Page, box: Locator, scrolled: int) -> dict[str, bytes]:
    """Pictures of some pixels at either edge, of what is scrolled so far."""
    box.evaluate("(box, left) => { box.scrollLeft = left; }", scrolled)
    box.scroll_into_view_if_needed()
    found = box.bounding_box()
    assert found is not None
    size = {"y": found["y"] + found["height"] / 2, "width": 4, "height": 4}
    sides = {"left": found["x"], "right": found["x"] + found["width"] - 4}
    return {side: page.screenshot(clip={"x": x, **size}) for side, x in sides.items()}


def test_the_table_of_strategies_fits_a_laptop(page: Page, at: str) -> None:
    page.goto(STRATEGIES + at)
    box = page.get_by_role("region", name="Observed here, table")
    widths = box.evaluate("(box) => [box.scrollWidth, box.clientWidth]")
    assert widths[0] <= widths[1]


def test_the_table_of_a_timeline_fits_a_laptop(page: Page, at: str) -> None:
    page.goto(f"/admin/aegis_scheduler/timeline/?from=2027-03-27T11:40:00Z&to={at}&at={at}")
    page.get_by_text("Show as table").first.click()
    box = page.get_by_role("region", name="Executions by worker, table")
    widths = box.evaluate("(box) => [box.scrollWidth, box.clientWidth]")
    assert widths[0] <= widths[1]
