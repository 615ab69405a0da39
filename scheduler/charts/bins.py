"""Timelines with more marks than can be read: cells of a round length instead of single executions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.charts.lanes import (
    LEAST_WIDTH,
    PAD,
    BinCell,
    Lane,
    LaneRows,
    MeetingMark,
    Part,
    short_name,
)
from scheduler.charts.looks import POSSIBLE, Look, badness, outcome, refusal
from scheduler.charts.marks import Meeting, Words
from scheduler.charts.scale import TimeScale

CELL = 26  # height
_LEAST_SHARE = 3.5  # pixels: one failure among a hundred runs must be seen

# (start, end) -> the page of that stretch.
Zoom = Callable[[datetime, datetime], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cells of ``step`` seconds from the start of the window."""

    step: int
    scale: TimeScale
    words: Words
    zoom: Zoom | None

    def covered(self, start: datetime, end: datetime | None) -> Iterator[int]:
        """The numbers of the cells that [start, end] touches; one that goes on reaches to now."""
        last = int((self.scale.window.seconds - 1e-6) // self.step)
        first, final = (self._number(t) for t in (start, end or self.words.now or self.scale.window.end))
        yield from range(max(0, first), min(last, max(first, final)) + 1)

    def ends(self, number: int) -> tuple[datetime, datetime]:
        """A cell's start and end, the last one cut to the window."""
        start = self.scale.window.start + timedelta(seconds=number * self.step)
        return start, min(start + timedelta(seconds=self.step), self.scale.window.end)

    def place(self, number: int) -> tuple[float, float]:
        """A cell's left edge and width, one pixel short of the next."""
        left, right = (self.scale.x(t) for t in self.ends(number))
        return left, round(max(LEAST_WIDTH, right - left - 1), 1)

    def when(self, number: int) -> str:
        """``11:50 to 11:55``."""
        return self.words.during(*self.ends(number))

    def url(self, number: int) -> str:
        """The page of that stretch, if there is one."""
        return self.zoom(*self.ends(number)) if self.zoom else ""

    def _number(self, instant: datetime) -> int:
        return int((instant - self.scale.window.start).total_seconds() // self.step)


def binned_lane(grid: Grid, rows: LaneRows, top: float) -> Lane:
    """One cell for each stretch in which anything was inside or refused."""
    cells = tuple(_cell(grid, number, found, rows.name, top) for number, found in sorted(_bins(grid, rows).items()))
    height = float(PAD + CELL + PAD)
    return Lane(name=rows.name, short=short_name(rows.name), y=top, height=height, cells=cells)


def _bins(grid: Grid, rows: LaneRows) -> dict[int, Counter[str]]:
    """Cell number -> how many of each outcome were inside, overlaps counted besides."""
    found: dict[int, Counter[str]] = {}
    entries = [(span.state, span.start, span.end) for span in rows.spans]
    entries += [("overlap", start, end) for span in rows.spans for start, end, _ in span.overlap]
    entries += [(f"refused {sign.kind}", sign.at, sign.at) for sign in rows.refusals]
    for key, start, end in entries:
        for number in grid.covered(start, end):
            found.setdefault(number, Counter())[key] += 1
    return found


def _cell(grid: Grid, number: int, found: Counter[str], worker: str, top: float) -> BinCell:
    refused = {key: refusal(key.removeprefix("refused ")) for key in found if key.startswith("refused ")}
    inside = {key: outcome(key) for key in sorted((k for k in found if k not in refused), key=badness)}
    looks = {**inside, **refused}
    counts = ", ".join(f"{found[key]:,} {look.label.lower()}" for key, look in looks.items())
    x, width = grid.place(number)
    return BinCell(
        x=x,
        width=width,
        parts=tuple(_parts([(looks[key], found[key]) for key in (*refused, *inside)], top + PAD)),
        name=f"{worker}, {grid.when(number)}: {counts}",
        url=grid.url(number),
        start=grid.ends(number)[0],
        words=grid.when(number),
        counts=counts,
    )


def _parts(shares: list[tuple[Look, int]], top: float) -> Iterator[Part]:
    """Stack the shares upwards; every one can be seen, at the cost of the largest."""
    total = sum(number for _, number in shares)
    heights = [max(_LEAST_SHARE, CELL * number / total) for _, number in shares]
    largest = heights.index(max(heights))
    heights[largest] = max(_LEAST_SHARE, heights[largest] - (sum(heights) - CELL))
    bottom = top + CELL
    for (look, _), height in zip(shares, heights, strict=True):
        bottom -= height
        yield Part(y=round(bottom, 1), height=round(height, 1), look=look)


def binned_meetings(grid: Grid, meetings: Sequence[Meeting]) -> tuple[MeetingMark, ...]:
    """One mark for each cell in which overlaps lie; proven where one of them is."""
    found: dict[int, list[Meeting]] = {}
    for meeting in meetings:
        for number in grid.covered(meeting.start, meeting.end):
            found.setdefault(number, []).append(meeting)
    marks = []
    for number, met in sorted(found.items()):
        proven = sum(meeting.certain for meeting in met)
        x, width = grid.place(number)
        name = f"{grid.when(number)}: {len(met):,} overlap{'' if len(met) == 1 else 's'}, {proven:,} proven"
        look = outcome("overlap") if proven else POSSIBLE
        marks.append(MeetingMark(x=x, width=width, look=look, name=name, url=grid.url(number)))
    return tuple(marks)
