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
RACES = 38
# The entries of the collection of reports, in its order.
REPORTS = (
    "R-DUP-02", "R-DUP-03", "R-DUP-04", "R-DUP-05", "R-DUP-06", "R-DUP-07", "R-DUP-08", "R-DUP-09", "R-DUP-10",
    "R-DUP-11", "R-DUP-12", "R-DUP-17", "R-OVL-01", "R-OVL-02", "R-OVL-05", "R-OVL-06", "R-OVL-07", "R-OVL-09",
    "R-OVL-12", "R-OVL-13", "R-OVL-14", "R-OVL-15", "R-STK-01", "R-STK-02", "R-STK-05", "R-STK-06", "R-STK-07",
    "R-STK-09", "R-STK-10", "R-STK-11", "R-STK-13", "R-REL-01", "R-REL-03", "R-REL-04", "R-REL-05", "R-REL-06",
    "R-REL-08", "R-REL-10", "R-TIM-01", "R-TIM-02", "R-TIM-04", "R-TIM-05", "R-TIM-06", "R-TIM-07", "R-TIM-08",
    "R-TIM-11", "R-SCH-02", "R-SCH-03", "R-SCH-04", "R-SCH-06", "R-SCH-08", "R-SCH-09", "R-SCH-10", "R-SCH-11",
    "R-SCH-14", "R-SCH-15", "R-VAL-02", "R-VAL-03", "R-VAL-04", "R-VAL-05", "R-VAL-06", "R-VAL-08", "R-VAL-09",
    "R-DB-01", "R-DB-03", "R-DB-05", "R-DB-06", "R-DB-07", "R-DB-08", "R-DB-09", "R-DB-10", "R-DB-11",
    "R-DB-15", "R-DB-16", "R-DB-18", "R-RED-01", "R-RED-02", "R-RED-03", "R-RED-04", "R-RED-05", "R-RED-08",
    "R-RED-11", "R-RED-13", "R-RED-14", "R-RLK-01", "R-RLK-02", "R-RLK-03", "R-RLK-04", "R-RLK-07", "R-POO-01",
    "R-POO-02", "R-POO-03", "R-POO-04", "R-POO-06", "R-FLO-02", "R-FLO-03", "R-FLO-04", "R-FLO-05", "R-FLO-06",
    "R-FLO-07", "R-SCA-01", "R-SCA-04", "R-SCA-05", "R-OPS-02", "R-OPS-04", "R-OPS-06", "R-OPS-07", "R-OPS-08",
    "R-OPS-09",
)  # fmt: skip


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
    assert tuple(cells[0] for cells in rows("Reports")) == REPORTS


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
