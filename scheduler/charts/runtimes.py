"""Run times of one schedule's latest ticks: bars, a line where the lease ends, hatch where two overlapped. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from scheduler.charts.looks import Look, outcome
from scheduler.charts.scale import count_ticks, duration_words
from scheduler.charts.table import Box, Cell, Column, Row, Table

HEIGHT, TOP, LEFT, FOOT = 190, 14, 52, 26
SLOTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One tick: ``ran`` is its longest body (seconds), None where nobody ran it; ``word`` a key of ``looks``."""

    fire_time: datetime
    ran: float | None
    word: str
    workers: tuple[str, ...]
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark:
    """One bar, or a sign at the foot where nobody ran it."""

    x: float
    y: float
    width: float
    height: float
    look: Look
    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A line and its number of seconds."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """What the template draws."""

    id: str
    summary: str
    width: int
    height: int
    plot: Box
    grid: tuple[Grid, ...]
    marks: tuple[RunMark, ...]
    lease_y: float | None
    lease: str
    legend: tuple[Look, ...]
    table: Table


def run_times(runs: Sequence[Run], lease: float | None, *, width: int) -> RunTimes:
    """``runs``: the newest first; ``lease``: seconds, None where no clock ends it."""
    shown = list(reversed(runs[:SLOTS]))
    longest = max((run.ran or 0.0 for run in shown), default=0.0)
    top = max(longest, lease if lease is not None and lease <= 4 * max(longest, 0.001) else 0.0, 0.001)
    plot = Box(x=LEFT, y=TOP, width=width - LEFT - 4, height=HEIGHT - TOP - FOOT)
    step = plot.width / SLOTS
    marks = tuple(_mark(run, plot, plot.right - step * (len(shown) - n), step, top) for n, run in enumerate(shown))
    known: dict[str, Look] = {mark.look.key: mark.look for mark in marks}
    return RunTimes(
        id="run-times", summary=_summary(shown, longest, lease), width=width, height=HEIGHT, plot=plot,
        grid=_grid(plot, top), marks=marks,
        lease_y=None if lease is None or lease > top else _y(plot, lease, top),
        lease="" if lease is None else f"lease {lease:g} s",
        legend=tuple(known.values()), table=_table(runs[:SLOTS]),
    )  # fmt: skip


def _y(plot: Box, seconds: float, top: float) -> float:
    return round(plot.bottom - plot.height * seconds / top, 1)


def _mark(run: Run, plot: Box, x: float, step: float, top: float) -> RunMark:
    y = plot.bottom - 5 if run.ran is None else min(_y(plot, run.ran, top), plot.bottom - 2)
    took = "nobody ran it" if run.ran is None else f"ran {duration_words(run.ran)}"
    on = f" on {' and '.join(run.workers)}" if run.workers else ""
    return RunMark(
        x=round(x + 1, 1), y=y, width=round(step - 2, 1), height=round(plot.bottom - y, 1), look=outcome(run.word),
        name=f"{_at(run.fire_time)}: {outcome(run.word).label}, {took}{on}", url=run.url,
    )  # fmt: skip


def _grid(plot: Box, top: float) -> tuple[Grid, ...]:
    if top < 4:
        return tuple(Grid(at=_y(plot, share * top, top), label=f"{share * top:.2g} s") for share in (0, 0.5, 1))
    lines = [number for number in count_ticks(max(1, int(top))) if number <= top]
    return tuple(Grid(at=_y(plot, number, top), label=f"{number} s") for number in lines)


def _summary(runs: Sequence[Run], longest: float, lease: float | None) -> str:
    ran = sum(1 for run in runs if run.ran is not None)
    beyond = f"; the lease of {lease:g} s is far above" if lease is not None and lease > 4 * longest > 0 else ""
    return f"{ran} of the last {len(runs)} ticks ran, the longest {duration_words(longest)}{beyond}"


def _table(runs: Sequence[Run]) -> Table:
    columns = (
        Column(title="Tick (UTC)"),
        Column(title="Ran", number=True),
        Column(title="Outcome"),
        Column(title="Workers"),
    )
    rows = tuple(
        Row(
            head=Cell(text=_at(run.fire_time), iso=run.fire_time.isoformat(), url=run.url),
            cells=(
                Cell(text="-" if run.ran is None else f"{run.ran:.2f} s", number=True),
                Cell(text=outcome(run.word).label),
                Cell(text=", ".join(run.workers) or "-"),
            ),
        )
        for run in runs
    )
    return Table(caption=f"Run times of the last {len(runs)} ticks", columns=columns, rows=rows)


def _at(instant: datetime) -> str:
    utc = instant.astimezone(UTC)
    return f"{utc.day} {utc:%b %H:%M:%S}"
