"""Chart templates: well-formed, nothing inline, every mark named, user text as text, no localised numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from django.template.loader import render_to_string
from django.test import override_settings

from scheduler.charts import Count, Marker, Meeting, Refusal, Span, Window, bars, timeline

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)
HOUR = Window(start=NOON, end=NOON + timedelta(hours=1))
HOSTILE = "<script>alert('&')</script>\"x"


def t(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def bar_page(*, url: str = "?outcome=overlap") -> str:
    chart = bars(
        [Count(start=t(5 * n), values={"executed": 1200, "overlap": n, "blocked": 1}) for n in range(12)],
        window=HOUR,
        step=300,
        zone=UTC,
        title=HOSTILE,
        link=lambda start, end, key: url,
        markers=[Marker(at=t(20), label=HOSTILE, url=url)],
    )
    return render_to_string("scheduler/charts/_bars.html", {"chart": chart})


def timeline_page(*, spans: int = 3, url: str = "?execution=1", text: str = HOSTILE) -> str:
    chart = timeline(
        window=HOUR,
        workers=["idle", text],
        spans=[
            Span(
                worker=text,
                start=t(n / 10),
                end=t(n / 10 + 2) if n else None,
                state="lost" if n else "running",
                label=text,
                detail=text,
                url=url,
                due=t(n / 10 - 1),
                overlap=((t(n / 10 + 1), t(n / 10 + 1.5), bool(n % 2)),),
            )
            for n in range(spans)
        ],
        refusals=[Refusal(worker="idle", at=t(9), kind="prevented", label="orders", detail=text, url=url)],
        meetings=[Meeting(start=t(1), end=None, certain=True, label=text, parties=("a", "b"), url=url)],
        markers=[Marker(at=t(20), label="strategy")],
        now=t(30),
        zone=UTC,
        zoom=lambda start, end: url,
    )
    return render_to_string("scheduler/charts/_timeline.html", {"chart": chart})


PAGES = {
    "bars": bar_page,
    "bars without links": lambda: bar_page(url=""),
    "timeline": timeline_page,
    "timeline without links": lambda: timeline_page(url=""),
    "binned timeline": lambda: timeline_page(spans=600),
    "empty bars": lambda: render_to_string(
        "scheduler/charts/_bars.html",
        {"chart": bars([], window=HOUR, step=300, zone=UTC, title="Ticks")},
    ),
    "empty timeline": lambda: render_to_string(
        "scheduler/charts/_timeline.html",
        {"chart": timeline(window=HOUR, workers=[], spans=[], zone=UTC)},
    ),
}


def parsed(name: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<page>{PAGES[name]()}</page>")


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_inline_and_references_resolve(name: str) -> None:
    tree = parsed(name)
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in tree.iter():
        assert element.tag not in {"script", "style"}
        assert "style" not in element.attrib
        assert not [key for key in element.attrib if key.startswith("on")]
        for key in ("aria-labelledby", "aria-describedby"):
            assert set((element.get(key) or "").split()) <= set(ids)
        pattern = re.fullmatch(r"url\(#(.+)\)", element.get("fill") or "")
        assert pattern is None or pattern[1] in ids
        if element.get("class") == "aegis-skip":
            assert element.get("href", "").removeprefix("#") in ids


@pytest.mark.parametrize("name", PAGES)
def test_every_mark_has_a_sentence_and_user_text_stays_text(name: str) -> None:
    tree = parsed(name)
    marks = [e for svg in tree.iter("svg") for e in svg.iter() if e.tag == "a" or e.get("role") == "img"]
    assert bool(marks) == ("empty" not in name)
    for mark in marks:
        title = mark.find("title")
        assert title is not None
        assert len(title.text or "") > 10
    assert ("without" in name) == (not any(m.tag == "a" for m in marks)) or "empty" in name
    if "empty" not in name:
        assert HOSTILE in " ".join(e.text or "" for e in tree.iter("title"))


@pytest.mark.parametrize("name", PAGES)
def test_numbers_in_attributes_are_never_localised(name: str) -> None:
    plain = PAGES[name]()
    with override_settings(LANGUAGE_CODE="de", USE_THOUSAND_SEPARATOR=True):
        assert PAGES[name]() == plain
    for element in ElementTree.fromstring(f"<page>{plain}</page>").iter():
        for key in ("x", "y", "x1", "x2", "y1", "y2", "width", "height", "rx"):
            assert re.fullmatch(r"-?\d+(\.\d+)?", element.get(key, "0")), (element.tag, key, element.get(key))


def test_table_repeats_the_chart() -> None:
    tree = parsed("timeline")
    rows = tree.findall(".//tbody/tr")
    assert len(rows) == 4
    assert all(row.find("th").get("scope") == "row" for row in rows)
    assert tree.find(".//caption") is not None
    assert {head.get("scope") for head in tree.findall(".//thead//th")} == {"col"}


def test_a_full_timeline_stays_small() -> None:
    text = "worker@1"
    assert len(timeline_page(spans=490, text=text)) < 450_000
    assert len(timeline_page(spans=5000, text=text)) < 400_000


def test_style_sheet_and_templates_know_the_same_names() -> None:
    root = Path(__file__).resolve().parents[3]
    css = (root / "scheduler/static/aegis/aegis.css").read_text()
    defined = set(re.findall(r"\.(aegis-[a-z-]+)", css))
    used = {
        name
        for page in PAGES.values()
        for classes in re.findall(r'class="([^"]+)"', page())
        for name in classes.split()
    }
    assert used - defined <= {"aegis-swatch", "aegis-lane"}
    variables = set(re.findall(r"(--aegis-[a-z-]+):", css))
    assert set(re.findall(r"var\((--aegis-[a-z-]+)\)", css)) == variables
    assert "url(" not in css, "nothing is fetched"
