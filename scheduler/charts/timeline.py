"""Timeline by worker: who ran when, where two were inside at once, and who was refused. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from scheduler.charts.bins import Grid, Zoom, binned_lane, binned_meetings
from scheduler.charts.lanes import BAR, PAD, Lane, LaneRows, MeetingMark, drawn_lane, meeting_marks
from scheduler.charts.looks import POSSIBLE, Look, badness, outcome, refusal, refusal_order
from scheduler.charts.marks import Meeting, Refusal, Span, Words
from scheduler.charts.scale import (
    AxisTick,
    Marker,
    MarkerLine,
    TimeScale,
    Window,
    bin_seconds,
    marker_lines,
    step_words,
    time_ticks,
    window_words,
)
from scheduler.charts.table import Box, Table
from scheduler.charts.timeline_table import binned_table, span_table

__all__ = ["Meeting", "Refusal", "Span", "Timeline", "timeline"]

MOST_MARKS = 500
MOST_LANES = 30
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 14, 26, 8
_NARROWEST_CELL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything that ``scheduler/charts/_timeline.html`` prints. No ``lanes``: no worker is known.

    ``selected``: the link of the mark whose execution is told below. ``lanes`` are those of ``workers`` (how many
    there are) from ``first_lane`` on.
    """

    id: str
    title: str
    summary: str
    note: str
    width: int
    height: int
    plot: Box
    lanes: tuple[Lane, ...]
    workers: int
    first_lane: int
    meetings: tuple[MeetingMark, ...]
    meetings_y: float
    now_x: float | None
    ticks: tuple[AxisTick, ...]
    markers: tuple[MarkerLine, ...]
    legend: tuple[Look, ...]
    sign_legend: tuple[Look, ...]
    table: Table
    selected: str

    @property
    def now_label(self) -> bool:
        """Whether the word "now" has room beside its line."""
        return self.now_x is not None and self.now_x <= self.plot.x + self.plot.width - 30

    @property
    def waits(self) -> bool:
        """Whether any bar shows the wait before its body."""
        return any(bar.wait_x is not None for lane in self.lanes for bar in lane.bars)

    @property
    def bar_height(self) -> int:
        """Of bars, cells and overlaps."""
        return BAR

    @property
    def meetings_top(self) -> float:
        """The line above the lane of overlaps."""
        return self.meetings_y - PAD


def timeline(
    *,
    window: Window,
    workers: Sequence[str],
    spans: Sequence[Span],
    refusals: Sequence[Refusal] = (),
    meetings: Sequence[Meeting] = (),
    markers: Sequence[Marker] = (),
    now: datetime | None = None,
    zone: tzinfo,
    title: str = "Timeline by worker",
    id: str = "timeline",  # noqa: A002 - it is an element's id
    zoom: Zoom | None = None,
    selected: str = "",
    width: int = 960,
    most_marks: int = MOST_MARKS,
    most_lanes: int = MOST_LANES,
    first_lane: int = 0,
) -> Timeline:
    """One lane per worker, idle ones too; a bar per execution, hatched where another was inside.

    ``workers`` gives the lanes and their order; a worker that only a row names gets a lane below. Bars
    without an end run to ``now``. Above ``most_marks`` each lane is merged into cells of a round length,
    at most ``most_lanes`` are drawn, those of the page that ``first_lane`` is on; the note says both.
    """
    facts = _Facts.inside(window, now, spans, refusals, meetings)
    named = _lane_names(workers, facts.spans, facts.refusals)
    scale = TimeScale(window=window, left=_LEFT, right=width - _RIGHT)
    words = Words(zone=zone, window=window, now=now)
    first = min(first_lane, max(0, len(named) - 1)) // most_lanes * most_lanes
    shown = named[first : first + most_lanes]
    rows = _by_worker(shown, facts.spans, facts.refusals)
    grid = Grid(step=_cell_seconds(scale, rows, facts.meetings, most_marks), scale=scale, words=words, zoom=zoom)
    frame = {"id": id, "title": title, "width": width, "selected": selected, "ticks": time_ticks(scale, zone)}
    lines = marker_lines(tuple(markers), scale, zone)
    frame |= {"workers": len(named), "first_lane": first}
    return _drawn(facts, named, shown, grid, _lanes(rows, grid), markers=lines, **frame)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a window shows, in the order of time."""

    spans: list[Span]
    refusals: list[Refusal]
    meetings: list[Meeting]

    @classmethod
    def inside(
        cls,
        window: Window,
        now: datetime | None,
        spans: Sequence[Span],
        refusals: Sequence[Refusal],
        meetings: Sequence[Meeting],
    ) -> _Facts:
        return cls(
            sorted((s for s in spans if _in(window, s.start, s.end or now)), key=lambda s: s.start),
            sorted((r for r in refusals if window.start <= r.at < window.end), key=lambda r: r.at),
            sorted((m for m in meetings if _in(window, m.start, m.end or now)), key=lambda m: m.start),
        )


def _drawn(
    facts: _Facts, named: list[str], shown: list[str], grid: Grid, lanes: tuple[Lane, ...], **frame: Any
) -> Timeline:
    """Lanes and what lies around them: overlaps below, the line of now, legend and table."""
    words, scale, window = grid.words, grid.scale, grid.words.window
    top = lanes[-1].bottom if lanes else float(_TOP)
    marks = binned_meetings(grid, facts.meetings) if grid.step else meeting_marks(facts.meetings, scale, words)
    kinds = {sign.kind for sign in facts.refusals}
    signs = tuple(refusal(kind) for kind in sorted(kinds, key=lambda kind: (refusal_order(kind), kind)))
    bottom = round(top + (PAD + BAR + PAD if marks else 0), 1)
    binned, title = bool(grid.step), frame["title"]
    return Timeline(
        summary=_summary(len(named), facts.spans, facts.refusals, facts.meetings, window, words.zone),
        note=_note(grid.step, len(named), frame["first_lane"], len(shown), len(facts.spans) + len(facts.refusals)),
        height=int(bottom + _BOTTOM),
        plot=Box(x=_LEFT, y=_TOP, width=frame["width"] - _LEFT - _RIGHT, height=round(bottom - _TOP, 1)),
        lanes=lanes,
        meetings=marks,
        meetings_y=round(top + PAD, 1),
        now_x=scale.x(words.now) if words.now and window.start <= words.now < window.end else None,
        legend=_legend(facts.spans, facts.meetings) + (signs if binned else ()),
        sign_legend=() if binned else signs,
        table=binned_table(title, lanes) if binned else span_table(title, shown, facts.spans, facts.refusals, words),
        **frame,
    )


def _lane_names(workers: Sequence[str], spans: Sequence[Span], refusals: Sequence[Refusal]) -> list[str]:
    strays = {span.worker for span in spans} | {sign.worker for sign in refusals}
    return list(dict.fromkeys([*workers, *sorted(strays)]))


def _by_worker(workers: Sequence[str], spans: Sequence[Span], refusals: Sequence[Refusal]) -> list[LaneRows]:
    return [
        LaneRows(
            name=name,
            spans=[span for span in spans if span.worker == name],
            refusals=[sign for sign in refusals if sign.worker == name],
        )
        for name in workers
    ]


def _lanes(rows: Sequence[LaneRows], grid: Grid) -> tuple[Lane, ...]:
    """One below the other; binned where the grid has a step."""
    lanes: list[Lane] = []
    top = float(_TOP)
    for row in rows:
        lanes.append(binned_lane(grid, row, top) if grid.step else drawn_lane(row, grid.scale, grid.words, top))
        top = lanes[-1].bottom
    return tuple(lanes)


def _in(window: Window, start: datetime, end: datetime | None) -> bool:
    return start < window.end and (end is None or end >= window.start)


def _cell_seconds(scale: TimeScale, rows: Sequence[LaneRows], meetings: Sequence[Meeting], most_marks: int) -> int:
    """0 to draw every row; else the length of a cell that keeps the chart below ``most_marks``."""
    marks = sum(len(lane.spans) + len(lane.refusals) for lane in rows) + len(meetings)
    if marks <= most_marks:
        return 0
    most_cells = min(most_marks // (len(rows) + 1), int((scale.right - scale.left) / _NARROWEST_CELL))
    return bin_seconds(scale.window, max(1, most_cells))


def _summary(
    lanes: int,
    spans: Sequence[Span],
    refusals: Sequence[Refusal],
    meetings: Sequence[Meeting],
    window: Window,
    zone: tzinfo,
) -> str:
    kinds = Counter(sign.kind for sign in refusals)
    proven = sum(meeting.certain for meeting in meetings)
    parts = [
        _number(lanes, "worker"),
        _number(len(spans), "execution"),
        *(f"{number:,} {refusal(kind).label.lower()}" for kind, number in kinds.items()),
        f"{_number(len(meetings), 'overlap')}" + (f" ({proven:,} proven)" if meetings else ""),
    ]
    return f"{', '.join(parts)}. {window_words(window, zone)}."


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _note(step: int, lanes: int, first: int, shown: int, rows: int) -> str:
    notes = []
    if step:
        notes.append(f"Binned: 1 cell = {step_words(step)}, {rows:,} marks; zoom in for single ones.")
    if shown < lanes:
        notes.append(f"Workers {first + 1} to {first + shown} of {lanes} are shown.")
    return " ".join(notes)


def _legend(spans: Sequence[Span], meetings: Sequence[Meeting]) -> tuple[Look, ...]:
    """Outcomes on the chart. Overlap is always explained, so that its absence means something."""
    keys = sorted({span.state for span in spans}, key=badness)
    looks = [outcome(key) for key in keys if key != "overlap"]
    possible = [POSSIBLE] if any(not m.certain for m in meetings) else []
    return (*looks, outcome("overlap"), *possible)
