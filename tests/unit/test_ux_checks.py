"""The page of checks against the tests: every number is there, every test it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
PAGE = PROJECT / "tests/browser/checks.md"
CHECKS = 41
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.M)


def test_every_check_is_there_once_and_in_order() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, CHECKS + 1))


@pytest.mark.parametrize(("number", "named"), [(number, named) for number, _, named in ROWS])
def test_a_check_has_a_test_or_says_why_not(number: str, named: str) -> None:
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", named)
    assert tests or re.match(r"(not yet|does not apply): \w+", named)
    assert [f"{path}::{name}" for path, name in tests if not re.search(rf"^def {name}\(", _text(path), re.M)] == []


def _text(path: str) -> str:
    file = PROJECT / path
    return file.read_text() if file.is_file() else ""
