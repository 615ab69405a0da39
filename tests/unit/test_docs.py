"""The documents against the code: links lead somewhere, tables name what there is, and all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scheduler.cli import verbs
from scheduler.conf import DEFAULTS
from scheduler.doctor.examination import TOPICS
from scheduler.failures import FAILURES, STRATEGIES
from scheduler.states import ExecutionState, TickOutcome, TickState

PROJECT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *sorted((PROJECT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
FIRST_CELL = re.compile(r"^\| `?\"?(\w+)", re.M)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_link_and_picture_leads_somewhere(document: Path) -> None:
    targets = [target for target in LINK.findall(document.read_text()) if "://" not in target]
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert missing == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), [PROJECT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in seen or document.suffix != ".md" or not document.is_file():
            continue
        seen.add(document)
        links = [target for target in LINK.findall(document.read_text()) if "://" not in target]
        waiting += [(document.parent / target).resolve() for target in links]
    assert {path.relative_to(PROJECT) for path in DOCUMENTS} - {path.relative_to(PROJECT) for path in seen} == set()


def test_the_settings_page_names_every_key_with_its_default() -> None:
    page = (PROJECT / "docs/reference/settings.md").read_text()
    table = page[page.index("## `AEGIS`") : page.index("## Of Celery")]
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`)?\"?([^|`\"]+)", table, re.M))
    assert {key: value.strip() for key, value in rows.items()} == {key: str(value) for key, value in DEFAULTS.items()}


def test_the_states_page_names_every_state() -> None:
    page = (PROJECT / "docs/reference/states.md").read_text()
    tick, execution = page.split("## Execution")
    assert {state for state in FIRST_CELL.findall(tick) if state != "state"} == set(TickState.values)
    assert {state for state in FIRST_CELL.findall(execution) if state != "state"} == set(ExecutionState.values)
    assert all(outcome in tick for outcome in TickOutcome.values)


def test_the_command_line_page_names_every_verb() -> None:
    page = (PROJECT / "docs/reference/command-line.md").read_text()
    assert set(FIRST_CELL.findall(page)) - {"verb"} == set(verbs())


def test_the_checks_page_names_every_id_and_no_other() -> None:
    """Ids are written out in the code, but for those of ``backends.params``, which end in the last argument."""
    sources = [path.read_text() for app in ("locks", "scheduler") for path in (PROJECT / app).rglob("*.py")]
    known = {found for text in sources for found in re.findall(r'id="(aegis\.\w+\.[EW]\d{3})"', text)}
    numbers = {int(n) for text in sources for n in re.findall(r"self\.error\(.*, (\d)\)$", text, re.M)}
    known |= {f"aegis.locks.E{number:03}" for number in numbers}
    page = (PROJECT / "docs/reference/checks.md").read_text()
    assert len(numbers) == 7, numbers
    assert sorted(re.findall(r"^\| `(aegis\.\w+\.[EW]\d{3})`", page, re.M)) == sorted(known)


def test_the_checks_page_and_the_doctors_page_are_reached_and_name_every_topic() -> None:
    page = (PROJECT / "docs/how-to/run-the-doctor.md").read_text()
    named = re.findall(r"^\*\*(\w+)\*\*:", page, re.M)
    assert named == [topic for topic in TOPICS if topic != "locks"]


def test_the_failure_modes_are_the_table_of_the_failure_matrix_word_for_word() -> None:
    page = (PROJECT / "docs/explanation/failure-modes.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    shown = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert shown[0] == ["what happens", *(f"`{alias}`" for alias in STRATEGIES)]
    known = [[row.title, *(row.cells[alias].words for alias in STRATEGIES)] for row in FAILURES]
    assert shown[1:] == known
