"""A row for each of the worst schedules: how it is guarded and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest

from scheduler.dashboard.facts import Key
from scheduler.dashboard.figures import Tally
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


# Rows of the table, which is drawn again for each page that is open.
MOST = 200


def worst(schedules: Mapping[Key, Tally]) -> dict[Key, Tally]:
    """The MOST with the most trouble, in the order in which they were: a row keeps its place while figures change."""
    if len(schedules) <= MOST:
        return dict(schedules)
    chosen = set(nlargest(MOST, schedules, key=lambda key: _trouble(schedules[key])))
    return {key: tally for key, tally in schedules.items() if key in chosen}


def _trouble(tally: Tally) -> tuple[int, ...]:
    """The larger, the worse: bodies too many for certain, then possibly, then what did not run or failed."""
    proven = tally.too_many[OVERLAP] + tally.too_many[DUPLICATE]
    return proven, tally.too_many[POSSIBLE], tally.missed + _in_vain(tally), tally.ticks


def schedule_rows(schedules: Mapping[Key, Tally], around: Around, timeline: str) -> list[ScheduleRow]:
    """The rows, in the order given. ``around`` gives the page of a collision; a deleted schedule has no page."""
    return [
        ScheduleRow(
            name=name,
            url=f"{timeline}?schedule={pk}" if pk is not None else "",
            strategy=", ".join(sorted(tally.strategies)),
            guard=" and ".join("on" if guarded else "off" for guarded in sorted(tally.guards)),
            figures=figures_of(tally),
            latest=around(tally.latest, pk) if tally.latest else "",
        )
        for (pk, name), tally in schedules.items()
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
        _toned(_in_vain(tally), "warn"),
    )


def _in_vain(tally: Tally) -> int:
    """Ticks that were blocked or failed."""
    return sum(tally.ended[word] for word in (TickOutcome.BLOCKED, *TROUBLE))


def _plain(number: int) -> Figure:
    return Figure(text=f"{number:,}")


def _toned(number: int, tone: str) -> Figure:
    return Figure(text=f"{number:,}", tone=tone if number else "")
