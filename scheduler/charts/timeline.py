"""Timeline by worker: who ran when, where two were inside at once, and who was refused. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from scheduler.charts.bins import Grid, Zoom, binned_lane, binned_meetings
from scheduler.charts.lanes import BAR, PAD, Lane, LaneRows, MeetingMark, drawn_lane, meeting_marks
from scheduler.charts.looks import POSSIBLE, Look, badness, outcome, refusal
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
    """Everything that ``scheduler/charts/_timeline.html`` prints. No ``lanes``: no worker is known."""

    id: str
    title: str
    summary: str
    note: str
    width: int
    height: int
    plot: Box
    lanes: tuple[Lane, ...]
    meetings: tuple[MeetingMark, ...]
    meetings_y: float
    now_x: float | None
    now_label: bool
    ticks: tuple[AxisTick, ...]
    markers: tuple[MarkerLine, ...]
    legend: tuple[Look, ...]
    sign_legend: tuple[Look, ...]
    waits: bool
    table: Table

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
    width: int = 960,
    most_marks: int = MOST_MARKS,
    most_lanes: int = MOST_LANES,
) -> Timeline:
    """One lane per worker, idle ones too; a bar per execution, hatched where another was inside.

    ``workers`` gives the lanes and their order; a worker that only a row names gets a lane below. Bars
    without an end run to ``now``. Above ``most_marks`` each lane is merged into cells of a round length,
    above ``most_lanes`` the rest is left out; the note says both.
    """
    spans = sorted((s for s in spans if _in(window, s.start, s.end or now)), key=lambda s: s.start)
    refusals = sorted((r for r in refusals if window.start <= r.at < window.end), key=lambda r: r.at)
    meetings = sorted((m for m in meetings if _in(window, m.start, m.end or now)), key=lambda m: m.start)
    named = _lane_names(workers, spans, refusals)
    shown = named[:most_lanes]
    scale = TimeScale(window=window, left=_LEFT, right=width - _RIGHT)
    words = Words(zone=zone, window=window, now=now)
    rows = _by_worker(shown, spans, refusals)
    step = _cell_seconds(scale, rows, meetings, most_marks)
    grid = Grid(step=step, scale=scale, words=words, zoom=zoom)
    lanes = _lanes(rows, grid)
    top = lanes[-1].bottom if lanes else float(_TOP)
    marks = binned_meetings(grid, meetings) if step else meeting_marks(meetings, scale, words)
    signs = tuple(refusal(kind) for kind in dict.fromkeys(sign.kind for sign in refusals))
    now_x = scale.x(now) if now and window.start <= now < window.end else None
    bottom = round(top + (PAD + BAR + PAD if marks else 0), 1)
    return Timeline(
        id=id,
        title=title,
        summary=_summary(len(named), spans, refusals, meetings, window, zone),
        note=_note(step, len(named), len(shown), len(spans) + len(refusals)),
        width=width,
        height=int(bottom + _BOTTOM),
        plot=Box(x=_LEFT, y=_TOP, width=width - _LEFT - _RIGHT, height=round(bottom - _TOP, 1)),
        lanes=lanes,
        meetings=marks,
        meetings_y=round(top + PAD, 1),
        now_x=now_x,
        now_label=now_x is not None and now_x <= scale.right - 30,
        ticks=time_ticks(scale, zone),
        markers=marker_lines(tuple(markers), scale, zone),
        legend=_legend(spans, meetings) + (signs if step else ()),
        sign_legend=() if step else signs,
        waits=any(bar.wait_x is not None for lane in lanes for bar in lane.bars),
        table=binned_table(title, lanes) if step else span_table(title, shown, spans, refusals, words),
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


def _note(step: int, lanes: int, shown: int, rows: int) -> str:
    notes = []
    if step:
        notes.append(f"Binned: 1 cell = {step_words(step)}, {rows:,} marks; zoom in for single ones.")
    if shown < lanes:
        notes.append(f"{shown} of {lanes} workers are shown.")
    return " ".join(notes)


def _legend(spans: Sequence[Span], meetings: Sequence[Meeting]) -> tuple[Look, ...]:
    """Outcomes on the chart. Overlap is always explained, so that its absence means something."""
    keys = sorted({span.state for span in spans}, key=badness)
    looks = [outcome(key) for key in keys if key != "overlap"]
    possible = [POSSIBLE] if any(not m.certain for m in meetings) else []
    return (*looks, outcome("overlap"), *possible)
