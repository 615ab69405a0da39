"""One row for each schedule: how it is guarded and what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.dashboard.figures import Figures, Tally
from scheduler.dashboard.links import Around
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP, POSSIBLE, RAN_ONCE, TROUBLE
from scheduler.states import ExecutionState, TickOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number in a column; ``tone`` is bad, warn or empty."""

    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule's figures, in the order of ``COLUMNS``."""

    name: str
    url: str
    strategy: str
    guard: str
    figures: tuple[Figure, ...]
    latest: str


COLUMNS = (
    "Ticks",
    "Ran once",
    "Gave way",
    "Prevented by lock",
    "Prevented by tick guard",
    "Duplicates",
    "Overlaps, proven",
    "Overlaps, possible",
    "Missed",
    "Blocked or failed",
)


def schedule_rows(figures: Figures, around: Around, timeline: str) -> list[ScheduleRow]:
    """The rows, by name. ``around`` gives the page of a collision; a deleted schedule has no page."""
    return [
        ScheduleRow(
            name=name,
            url=f"{timeline}?schedule={pk}" if pk is not None else "",
            strategy=", ".join(sorted(tally.strategies)),
            guard=" and ".join("on" if guarded else "off" for guarded in sorted(tally.guards)),
            figures=figures_of(tally),
            latest=around(tally.latest, pk) if tally.latest else "",
        )
        for (pk, name), tally in figures.schedules.items()
    ]


def figures_of(tally: Tally) -> tuple[Figure, ...]:
    """The numbers in the order of ``COLUMNS``."""
    return (
        _plain(tally.ticks),
        _plain(tally.outcomes[RAN_ONCE]),
        _plain(tally.outcomes[TickOutcome.PREVENTED]),
        _plain(tally.refusals[ExecutionState.PREVENTED]),
        _plain(tally.refusals[ExecutionState.DUPLICATE]),
        _toned(tally.too_many[DUPLICATE], "bad"),
        _toned(tally.too_many[OVERLAP], "bad"),
        _toned(tally.too_many[POSSIBLE], "warn"),
        _toned(tally.missed, "warn"),
        _toned(sum(tally.ended[word] for word in (TickOutcome.BLOCKED, *TROUBLE)), "warn"),
    )


def _plain(number: int) -> Figure:
    return Figure(text=f"{number:,}")


def _toned(number: int, tone: str) -> Figure:
    return Figure(text=f"{number:,}", tone=tone if number else "")
