"""Stacked bars: how many of each outcome, over time; alone or as strips on one scale. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from scheduler.charts.looks import Look, badness, outcome
from scheduler.charts.scale import (
    AxisTick,
    Marker,
    MarkerLine,
    TimeScale,
    Window,
    clock,
    coarser,
    count_ticks,
    marker_lines,
    step_words,
    time_ticks,
    window_words,
)
from scheduler.charts.table import Box, Cell, Column, Row, Table

MOST_MARKS = 500
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 14, 26
_LEAST_HEIGHT = 3.0  # one overlap among a thousand runs must be seen
_WIDEST_BAR = 44.0
_NARROWEST_BAR = 4.0

# (bin start, bin end, outcome) -> where that count is listed.
Link = Callable[[datetime, datetime, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many of each outcome fell into the bin that starts here."""

    start: datetime
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarMark:
    """One segment of one bar; ``name`` is the whole sentence."""

    x: float
    y: float
    width: float
    height: float
    look: Look
    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendItem:
    """An outcome that the chart shows, and its total."""

    look: Look
    total: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Everything that ``scheduler/charts/_bars.html`` prints. No ``stacks``: nothing to show."""

    id: str
    title: str
    summary: str
    note: str
    width: int
    height: int
    plot: Box
    stacks: tuple[tuple[BarMark, ...], ...]
    x_ticks: tuple[AxisTick, ...]
    y_ticks: tuple[AxisTick, ...]
    markers: tuple[MarkerLine, ...]
    legend: tuple[LegendItem, ...]
    table: Table

    @property
    def foot(self) -> float:
        """Where the small lines of the time axis end."""
        return round(self.plot.bottom + 5, 1)


def bars(
    counts: Sequence[Count],
    *,
    window: Window,
    step: int,
    zone: tzinfo,
    title: str,
    id: str = "bars",  # noqa: A002 - it is an element's id
    unit: str = "ticks",
    link: Link | None = None,
    markers: Sequence[Marker] = (),
    width: int = 960,
    height: int = 200,
    tallest: int | None = None,
) -> BarChart:
    """Counts per bin of ``step`` seconds as stacked bars, calm outcomes below and bad ones on top.

    Bins are merged where there would be more than 500 marks or bars narrower than 4 pixels, and the note says
    so. ``tallest`` sets the scale where several charts share one.
    """
    bins, step = _merged(counts, window, step, _plot(width, height))
    levels = count_ticks(max(_highest(bins), tallest or 0))
    drawing = _Drawing(window=window, plot=_plot(width, height), levels=levels, step=step, zone=zone, link=link)
    totals = sum(bins.values(), Counter[str]())
    keys = sorted((key for key in totals if totals[key]), key=badness)
    return BarChart(
        id=id,
        title=title,
        summary=_summary(totals, keys, unit, window, zone),
        note=f"1 bar = {step_words(step)}",
        width=width,
        height=height,
        plot=drawing.plot,
        stacks=tuple(drawing.stack(start, bins[start], keys) for start in sorted(bins)),
        x_ticks=time_ticks(drawing.scale, zone),
        y_ticks=drawing.y_ticks(),
        markers=marker_lines(tuple(markers), drawing.scale, zone),
        legend=tuple(LegendItem(look=outcome(key), total=f"{totals[key]:,}") for key in keys),
        table=_table(title, bins, keys, drawing),
    )


def strips(
    groups: Mapping[str, Sequence[Count]],
    *,
    window: Window,
    step: int,
    zone: tzinfo,
    id: str = "strip",  # noqa: A002 - it is an element's id
    unit: str = "ticks",
    links: Mapping[str, Link] | None = None,
    width: int = 960,
    height: int = 120,
) -> tuple[BarChart, ...]:
    """One chart per group, on the same two scales, so that groups can be compared by eye."""
    plot = _plot(width, height)
    merged = [_merged(counts, window, step, plot) for counts in groups.values()]
    coarsest = max((coarse for _, coarse in merged), default=step)
    again = [_merged(counts, window, coarsest, plot)[0] for counts in groups.values()]
    tallest = max(map(_highest, again), default=0)
    return tuple(
        bars(
            counts,
            window=window,
            step=coarsest,
            zone=zone,
            title=name,
            id=f"{id}-{number}",
            unit=unit,
            link=(links or {}).get(name),
            width=width,
            height=height,
            tallest=tallest,
        )
        for number, (name, counts) in enumerate(groups.items(), start=1)
    )


def _plot(width: int, height: int) -> Box:
    return Box(x=_LEFT, y=_TOP, width=width - _LEFT - _RIGHT, height=height - _TOP - _BOTTOM)


def _highest(bins: Mapping[datetime, Counter[str]]) -> int:
    """How many the tallest bar counts."""
    return max((values.total() for values in bins.values()), default=0)


def _merged(
    counts: Sequence[Count], window: Window, step: int, plot: Box
) -> tuple[dict[datetime, Counter[str]], int]:
    """Bins on the grid of the epoch, as coarse as it takes."""
    unit = step
    while True:
        bins: dict[datetime, Counter[str]] = {}
        for count in counts:
            start = _bin_start(count.start, step)
            if start < window.end and start + timedelta(seconds=step) > window.start:
                bins.setdefault(start, Counter()).update({k: n for k, n in count.values.items() if n > 0})
        marks = sum(len(values) for values in bins.values())
        bar = plot.width * step / window.seconds
        if (marks <= MOST_MARKS and bar >= _NARROWEST_BAR) or step >= window.seconds:
            return {start: values for start, values in bins.items() if values}, step
        step = coarser(step, unit)


def _bin_start(instant: datetime, step: int) -> datetime:
    seconds = int(instant.timestamp()) // step * step
    return datetime.fromtimestamp(seconds, tz=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """The scales of one chart, and what is drawn with them."""

    window: Window
    plot: Box
    levels: tuple[int, ...]
    step: int
    zone: tzinfo
    link: Link | None

    @property
    def scale(self) -> TimeScale:
        """From instants to pixels."""
        return TimeScale(window=self.window, left=self.plot.x, right=self.plot.right)

    def tall(self, count: float) -> float:
        """Pixels; the highest level is as tall as the plot."""
        return self.plot.height * count / self.levels[-1]

    def y_ticks(self) -> tuple[AxisTick, ...]:
        """A line for each level."""
        return tuple(
            AxisTick(at=round(self.plot.bottom - self.tall(level), 1), label=f"{level:,}") for level in self.levels
        )

    def ends(self, start: datetime) -> tuple[datetime, datetime]:
        """The bin, cut to the window."""
        end = start + timedelta(seconds=self.step)
        return max(start, self.window.start), min(end, self.window.end)

    def words(self, start: datetime) -> str:
        """``11:50 to 11:55``."""
        return " to ".join(clock(t, self.zone, self.window) for t in self.ends(start))

    def stack(self, start: datetime, values: Counter[str], keys: Sequence[str]) -> tuple[BarMark, ...]:
        """The segments of one bar, from the bottom up; none is thinner than can be seen."""
        first, last = self.ends(start)
        left, right = self.scale.x(first), self.scale.x(last)
        width = round(max(2.0, min(_WIDEST_BAR, right - left - 2)), 1)
        x = round((left + right - width) / 2, 1)
        marks, bottom = [], self.plot.bottom
        for key in (key for key in keys if values[key]):
            look, number = outcome(key), values[key]
            height = round(max(_LEAST_HEIGHT, self.tall(number)), 1)
            bottom = round(bottom - height, 1)
            name = f"{self.words(start)}: {number:,} {look.label.lower()}"
            url = self.link(first, last, key) if self.link else ""
            marks.append(BarMark(x=x, y=bottom, width=width, height=height, look=look, name=name, url=url))
        return tuple(marks)


def _summary(totals: Counter[str], keys: Sequence[str], unit: str, window: Window, zone: tzinfo) -> str:
    when = window_words(window, zone)
    if not keys:
        return f"No {unit} in this window. {when}."
    listed = ", ".join(f"{totals[key]:,} {outcome(key).label.lower()}" for key in keys)
    return f"{sum(totals.values()):,} {unit}: {listed}. {when}."


def _table(title: str, bins: Mapping[datetime, Counter[str]], keys: Sequence[str], drawing: _Drawing) -> Table:
    rows = []
    for start in sorted(bins):
        first, last = drawing.ends(start)
        cells = tuple(
            Cell(
                text=f"{bins[start][key]:,}",
                url=drawing.link(first, last, key) if drawing.link and bins[start][key] else "",
                number=True,
            )
            for key in keys
        )
        rows.append(Row(head=Cell(text=drawing.words(start), iso=first.isoformat()), cells=cells))
    columns = (Column(title="Time"), *(Column(title=outcome(key).label, number=True) for key in keys))
    return Table(caption=title, columns=columns, rows=tuple(rows))
