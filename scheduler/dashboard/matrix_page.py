"""The failure matrix: what is documented of each failure under each strategy, and beside it what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.charts.looks import Look
from scheduler.cli import offers
from scheduler.dashboard.header import Header, header
from scheduler.dashboard.measured import Measured, measured
from scheduler.dashboard.notes import Note
from scheduler.dashboard.params import Link, Params
from scheduler.failures import FAILURES, PROMISED, STRATEGIES, Answer, Documented, Failure
from scheduler.models import MeasuredCell

NOT_TESTED = "Not tested"

# The pattern of each word; the word is always beside it.
LOOKS = {
    answer: Look(key=answer.name.lower(), label=answer.value, style=style)
    for answer, style in {
        Answer.COVERED: "ok-solid",
        Answer.TICK_GUARD: "ok-open",
        Answer.GUARD_WRITES: "warn-stripes",
        Answer.BLOCKED: "warn-grid",
        Answer.REFUSED: "calm-outline",
        Answer.RUNS: "mute-solid",
        Answer.NONE: "mute-outline",
        Answer.NOT_COVERED: "bad-faint",
        Answer.DOUBLE: "bad-dots",
        Answer.OVERLAP: "bad-hatch",
    }.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was measured of one cell, in words."""

    text: str
    detail: str = ""
    tested: bool = False
    mismatch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One strategy in one row."""

    strategy: str
    documented: Documented
    look: Look
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One failure."""

    failure: Failure
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The matrix and the run that is beside it."""

    params: Params
    header: Header
    measured: Measured | None
    rows: list[Row]
    notes: list[Note]


def report(given: Mapping[str, str]) -> Report:
    """The documented table, with the run that was chosen, or the newest."""
    params = Params(given)
    number = params.number("run")
    run = measured(number)
    if number is not None and (run is None or run.run.pk != number):
        params.problems.append(f"run: there is no measured run {number} among the newest; the newest is shown.")
    rows = matrix(run.cells if run else ())
    return Report(params=params, header=header(), measured=run, rows=rows, notes=_notes(params, rows))


def matrix(measured_cells: Any) -> list[Row]:
    """All rows; measured cells are found by fault and strategy."""
    known = {(cell.fault, cell.strategy): cell for cell in measured_cells}
    return [
        Row(failure=failure, cells=tuple(_cell(failure, alias, known) for alias in STRATEGIES))
        for failure in FAILURES
    ]


def _cell(failure: Failure, alias: str, known: Mapping[tuple[str, str], MeasuredCell]) -> Cell:
    documented = failure.cells[alias]
    measurement = known.get((failure.fault, alias)) if failure.fault else None
    seen = seen_of(documented, measurement) if measurement else Seen(text=NOT_TESTED)
    return Cell(strategy=alias, documented=documented, look=LOOKS[documented.answer], seen=seen)


def seen_of(documented: Documented, cell: MeasuredCell) -> Seen:
    """``2 faults: held``. What this fault alone explains, against a promise, is a mismatch."""
    counts = (
        (cell.overlaps, "overlap"),
        (cell.duplicates, "duplicate"),
        (cell.stale_effects, "stale effect"),
    )
    harm = ", ".join(_plural(number, word) for number, word in counts if number)
    promised = documented.answer in PROMISED and cell.strategy != "none"
    mismatch = bool(cell.broken_promises) or (promised and cell.alone > 0)
    detail = [f"{_plural(cell.bodies_hit, 'body', 'bodies')} hit"]
    detail += [_plural(cell.missed, "fire time") + " missed"] if cell.missed else []
    detail += [f"{cell.lost:,} ended early"] if cell.lost else []
    if harm and not cell.alone:
        detail.append("each with another fault near")
    return Seen(
        text=f"{_plural(cell.injected, 'fault')}: {harm or 'held'}",
        detail=", ".join(detail),
        tested=True,
        mismatch=mismatch,
    )


def _plural(number: int, word: str, many: str = "") -> str:
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def _notes(params: Params, rows: list[Row]) -> list[Note]:
    wrong = [(row, cell) for row in rows for cell in row.cells if cell.seen.mismatch]
    notes = [Note(problem) for problem in params.problems]
    return notes + [
        Note(
            f"Measured against what is documented: {row.failure.title.lower()}, {cell.strategy}: documented "
            f'"{cell.documented.answer}", measured {cell.seen.text}. Report it, with the file of the soak.'
        )
        for row, cell in wrong
    ]


def context(found: Report, data: str) -> dict[str, Any]:
    """What the template prints."""
    here = found.measured
    return {
        "title": "Failure matrix",
        "header": found.header,
        "notes": found.notes,
        "frozen": None,
        "strategies": STRATEGIES,
        "rows": found.rows,
        "legend": [look for answer, look in LOOKS.items() if answer is not Answer.NONE],
        "measured": here,
        "soak": offers("soak"),
        "runs": [Link(text=str(run), url=f"?run={run.pk}", current=run.pk == here.run.pk) for run in here.runs]
        if here
        else [],
        "data_url": found.params.url(data, run=here.run.pk if here else None),
    }


def as_json(found: Report) -> dict[str, Any]:
    """The matrix for programs."""
    return {
        "schema": "aegis.matrix.1",
        "failures": [
            {
                "key": row.failure.key,
                "title": row.failure.title,
                "strategies": {
                    cell.strategy: {
                        "documented": cell.documented.answer.value,
                        "text": cell.documented.text,
                        "measured": cell.seen.text if cell.seen.tested else None,
                        "mismatch": cell.seen.mismatch,
                    }
                    for cell in row.cells
                },
            }
            for row in found.rows
        ],
        "run": found.measured.as_json() if found.measured else None,
    }
