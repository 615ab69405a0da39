"""The documents against the code: links lead somewhere, tables name what there is, and all of it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from django.db.models import Field

from locks import backends
from locks.backends.base import BaseLockBackend
from scheduler import task
from scheduler.cli import verbs
from scheduler.collisions import Cause
from scheduler.conf import DEFAULTS
from scheduler.context import RunContext
from scheduler.doctor.examination import TOPICS
from scheduler.failures import FAILURES, STRATEGIES
from scheduler.models import Schedule
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


def test_every_cause_of_a_collision_is_named() -> None:
    page = (PROJECT / "docs/how-to/read-the-dashboard.md").read_text()
    table = page[page.index("| cause |") :]
    assert re.findall(r"^\| ([\w ]+?) \|", table, re.M)[1:] == [cause.value for cause in Cause]


def of_tasks(heading: str) -> str:
    page = (PROJECT / "docs/reference/tasks-and-schedules.md").read_text()
    return page.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]


def test_every_option_of_an_exclusive_task_is_named() -> None:
    known = re.findall(r'options\.pop\("(\w+)"', inspect.getsource(task.exclusive_task))
    assert set(FIRST_CELL.findall(of_tasks("`@exclusive_task`"))) - {"option"} == set(known) != set()


def test_all_that_a_body_is_given_is_named() -> None:
    inside = {"kept", "guards", "of"}
    members = {name for name in vars(RunContext) if not name.startswith("_")} | {f.name for f in fields(RunContext)}
    cells = re.findall(r"^\| (`.+?) \|", of_tasks("`RunContext`"), re.M)
    assert {name for cell in cells for name in re.findall(r"`(\w+)", cell)} == members - inside


def test_every_field_of_a_schedule_is_named_with_its_default() -> None:
    section = of_tasks("Fields of a schedule")
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", section, re.M))
    concrete = [field for field in Schedule._meta.concrete_fields if not field.primary_key]
    assert rows == {field.name: default_of(field) for field in concrete if field.editable}
    assert {field.name for field in concrete if f"`{field.name}`" not in section} == set()


def default_of(field: Field[Any, Any]) -> str:
    if not field.has_default():
        return "None" if field.null else '""' if field.blank else "required"
    value = field.get_default()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def test_every_option_of_a_backend_is_named() -> None:
    page = (PROJECT / "docs/reference/settings.md").read_text()
    table = page[page.index("| option | of |") : page.index("Where Django goes through PgBouncer")]
    modules = [import_module(f"locks.backends.{found.name}") for found in iter_modules(backends.__path__)]
    kinds = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    known = {name for one in kinds if issubclass(one, BaseLockBackend) for name in one.params_validator.options}
    assert set(re.findall(r"^\| `(\w+)`", table, re.M)) - {"option"} == known != set()
