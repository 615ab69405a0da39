"""``tests/cases.md`` against the tests: a row for every report, an outcome in every row, and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
CASES = PROJECT / "tests" / "cases.md"
NAMED = re.compile(r"`((?:tests|locks)/[\w/]+\.py)::(\w+)`")
OUTCOMES = ("holds", "holds, in part: ", "answered otherwise: ", "not run: ", "open: ")
REPORTS, RACES = 109, 38


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under ``heading``, without its head."""
    section = re.split(r"^## ", CASES.read_text(), flags=re.M)
    (text,) = (part for part in section if part.startswith(heading))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


SECTIONS = ("Reports", "The engine's races", "Scenarios")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((PROJECT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(CASES.read_text())
    assert len(named) > 200
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []


def test_every_report_has_one_row() -> None:
    ids = [cells[0] for cells in rows("Reports")]
    assert all(re.fullmatch(r"R-[A-Z]{2,3}-\d\d", one) for one in ids)
    assert len(ids) == len(set(ids)) == REPORTS


def test_the_races_are_numbered_without_a_gap() -> None:
    assert [cells[0] for cells in rows("The engine's races")] == [str(n) for n in range(1, RACES + 1)]


@pytest.mark.parametrize("section", SECTIONS)
def test_no_row_has_an_empty_cell(section: str) -> None:
    assert [cells for cells in rows(section) if len(cells) != 4 or not all(cells)] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_each_outcome_is_one_of_the_known_and_what_holds_names_a_test(section: str) -> None:
    for entry, _, tests, outcome in rows(section):
        assert outcome == "holds" or any(outcome.startswith(one) for one in OUTCOMES[1:]), (entry, outcome)
        assert not outcome.startswith("holds") or NAMED.search(tests), entry
