"""The Chromium that the tests drive: Debian's, never one that is downloaded."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
REMEDY = "no Chromium: `make browser` says how to get it, or name one in AEGIS_CHROMIUM"


def chromium() -> str | None:
    """The path of the program, or None where there is none."""
    named = os.environ.get("AEGIS_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def required() -> bool:
    """Whether a machine without Chromium fails these tests instead of skipping them."""
    return os.environ.get("AEGIS_BROWSER_TESTS") == "required"
