"""Pictures of the pages in both themes, to be looked at: in the folder AEGIS_SCREENSHOTS, else a temporary one."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import pytest
from playwright.sync_api import Page

from scheduler.models import Alert, Schedule
from tests.browser.conftest import PHONE

PICTURES = {
    "overview": "dashboard/?window=24h&at={at}",
    "list": "schedule/",
    "form": "schedule/{report}/change/",
    "schedule": "schedule/{cleanup}/",
    "timeline": "timeline/?from=2027-03-27T11:54:50Z&to=2027-03-27T11:55:20Z&at={at}",
    "strategies": "strategies/?at={at}",
    "matrix": "failurematrix/",
    "locks": "locks/",
    "workers": "workers/",
    "alerts": "alert/",
    "alert": "alert/{alert}/",
    "rules": "alert/rules/",
    "executions": "execution/",
}
COLOURS = 50
EVERY = 16  # lines of a picture: enough to tell a page from a blank one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chosen = Path(os.environ.get("AEGIS_SCREENSHOTS") or tmp_path)
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_a_page_is_not_blank(page: Page, at: str, folder: Path, name: str) -> None:
    keys = {one.name: one.pk for one in Schedule.objects.filter(name__in=("report", "cleanup"))}
    alert = Alert.objects.create(rule="overlap", subject="lock.cleanup", message="3 overlaps within 15 minutes.")
    page.goto("/admin/aegis_scheduler/" + PICTURES[name].format(at=at, alert=alert.pk, **keys))
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.evaluate(
            "Promise.allSettled(document.getAnimations().map((fading) => fading.finished)).then(() => null)"
        )
        picture = page.screenshot(path=folder / f"{name}-{theme}.png", full_page=True)
        assert colours(picture) > COLOURS
    page.set_viewport_size(PHONE)
    page.screenshot(path=folder / f"{name}-phone.png", full_page=True)


def colours(png: bytes) -> int:
    """How many different pixels are in some lines of a picture of 8 bits a channel, as they are filtered."""
    data, at, width, channels = b"", 8, 0, 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, channels = struct.unpack(">I", body[:4])[0], {2: 3, 6: 4}[body[9]]
        elif kind == b"IDAT":
            data += body
        at += length + 12
    raw = zlib.decompress(data)
    line = width * channels + 1
    lines = [raw[start + 1 : start + line] for start in range(0, len(raw), line * EVERY)]
    return len({row[i : i + channels] for row in lines for i in range(0, len(row) - channels, channels)})
