"""The timeline in words: one row for each mark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from scheduler.charts.lanes import Lane
from scheduler.charts.looks import outcome, refusal
from scheduler.charts.marks import Refusal, Span, Words
from scheduler.charts.table import Cell, Column, Row, Table

_COLUMNS = (
    Column(title="Start"),
    Column(title="Worker"),
    Column(title="Schedule"),
    Column(title="Outcome"),
    Column(title="End"),
    Column(title="Ran", number=True),
    Column(title="Overlap"),
    Column(title="Detail"),
)


def span_table(
    title: str, workers: Sequence[str], spans: Sequence[Span], refusals: Sequence[Refusal], words: Words
) -> Table:
    """Executions and refusals together, by time."""
    rows = [(span.start, _span_row(span, words)) for span in spans if span.worker in workers]
    rows += [(sign.at, _refusal_row(sign, words)) for sign in refusals if sign.worker in workers]
    return Table(
        caption=title, columns=_COLUMNS, rows=tuple(row for _, row in sorted(rows, key=lambda pair: pair[0]))
    )


def _span_row(span: Span, words: Words) -> Row:
    overlaps = [words.overlap(*stretch).removeprefix("overlap ") for stretch in span.overlap]
    return Row(
        head=_moment(span.start, words),
        cells=(
            Cell(text=span.worker),
            Cell(text=span.label, url=span.url),
            Cell(text=outcome(span.state).label),
            _moment(span.end, words) if span.end else Cell(text="still running"),
            Cell(text=words.length(span.start, span.end), number=True),
            Cell(text="; ".join(overlaps) or "none"),
            Cell(text=span.detail),
        ),
    )


def _refusal_row(sign: Refusal, words: Words) -> Row:
    return Row(
        head=_moment(sign.at, words),
        cells=(
            Cell(text=sign.worker),
            Cell(text=sign.label, url=sign.url),
            Cell(text=refusal(sign.kind).label),
            Cell(text="not begun"),
            Cell(text="", number=True),
            Cell(text="none"),
            Cell(text=sign.detail),
        ),
    )


def _moment(instant: datetime, words: Words) -> Cell:
    return Cell(text=words.at(instant), iso=instant.isoformat())


def binned_table(title: str, lanes: Sequence[Lane]) -> Table:
    """One row for each cell of a binned timeline."""
    rows = sorted(((cell.start, lane, cell) for lane in lanes for cell in lane.cells), key=lambda row: row[0])
    return Table(
        caption=f"{title}, binned",
        columns=(Column(title="Time"), Column(title="Worker"), Column(title="Inside or refused")),
        rows=tuple(
            Row(
                head=Cell(text=cell.words, iso=cell.start.isoformat(), url=cell.url),
                cells=(Cell(text=lane.name), Cell(text=cell.counts)),
            )
            for _, lane, cell in rows
        ),
    )
