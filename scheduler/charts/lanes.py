"""Lanes of a timeline: where each bar, sign and cell goes. Pure.

A worker that runs several executions at once gets as many rows in its lane. Signs of refusals have a strip
of their own under the rows, so that a long run never hides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler.charts.looks import POSSIBLE, Look, outcome, refusal
from scheduler.charts.marks import Meeting, Refusal, Span, Words
from scheduler.charts.scale import TimeScale

BAR, GAP, PAD, SIGNS = 18, 4, 8, 16
LEAST_WIDTH = 3.0
_LEAST_TARGET = 14.0
_LETTER = 6.3  # width of a letter of the bars' labels, pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """The rows of one worker."""

    name: str
    spans: Sequence[Span]
    refusals: Sequence[Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hatch:
    """A stretch of a bar in which it was not alone."""

    x: float
    width: float
    look: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One execution. ``hit_...`` is the unseen target of a narrow one, ``arrow`` an open end in points."""

    x: float
    y: float
    width: float
    look: Look
    name: str
    url: str
    text: str
    text_x: float
    hit_x: float
    hit_width: float
    hatches: tuple[Hatch, ...]
    arrow: str
    wait_x: float | None

    @property
    def height(self) -> int:
        """The same for all bars."""
        return BAR

    @property
    def middle(self) -> float:
        """Half-way down."""
        return round(self.y + BAR / 2, 1)

    @property
    def text_class(self) -> str:
        """On a plain fill, or with a halo on anything else."""
        return "aegis-inside" if self.look.style.endswith("-solid") else "aegis-inside aegis-halo"

    @property
    def text_y(self) -> float:
        """The base line of its label."""
        return round(self.y + BAR / 2 + 4, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One refusal, around (x, y)."""

    x: float
    y: float
    look: Look
    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The share of one outcome in a cell."""

    y: float
    height: float
    look: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class BinCell:
    """What a worker did in one cell of a binned timeline: shares from calm below to bad on top."""

    x: float
    width: float
    parts: tuple[Part, ...]
    name: str
    url: str
    start: datetime
    words: str
    counts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One worker. ``short`` is its name as far as it fits."""

    name: str
    short: str
    y: float
    height: float
    bars: tuple[Bar, ...] = ()
    signs: tuple[Sign, ...] = ()
    cells: tuple[BinCell, ...] = ()

    @property
    def bottom(self) -> float:
        """Where the next lane begins."""
        return round(self.y + self.height, 1)

    @property
    def label_y(self) -> float:
        """The base line of its name, beside the first row."""
        return round(self.y + PAD + BAR / 2 + 4, 1)

    @property
    def idle(self) -> bool:
        """Whether nothing is drawn in it."""
        return not (self.bars or self.signs or self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingMark:
    """One overlap in the lane at the foot."""

    x: float
    width: float
    look: Look
    name: str
    url: str


def drawn_lane(rows: LaneRows, scale: TimeScale, words: Words, top: float) -> Lane:
    """Every execution as a bar in the first row that is free, every refusal as a sign below."""
    free_from: list[float] = []
    bars = []
    for span in rows.spans:
        x, width = _place(span.start, span.end or words.now, scale, LEAST_WIDTH)
        row = next((n for n, free in enumerate(free_from) if free <= x), len(free_from))
        free_from[row : row + 1] = [x + width + 1]
        bars.append(_bar(span, x, width, round(top + PAD + row * (BAR + GAP), 1), scale, words))
    below = top + PAD + max(1, len(free_from)) * (BAR + GAP)
    signs = tuple(
        Sign(
            x=scale.x(sign.at),
            y=round(below + SIGNS / 2 - 2, 1),
            look=refusal(sign.kind),
            name=words.refusal(sign),
            url=sign.url,
        )
        for sign in rows.refusals
    )
    height = round(below - GAP + (SIGNS if signs else 0) + PAD - top, 1)
    return Lane(name=rows.name, short=short_name(rows.name), y=top, height=height, bars=tuple(bars), signs=signs)


def _bar(span: Span, x: float, width: float, y: float, scale: TimeScale, words: Words) -> Bar:
    hatches = tuple(_hatch(stretch, x, width, scale, words) for stretch in span.overlap)
    text_x = _room_for(span.label, x, width, hatches)
    grow = max(0.0, _LEAST_TARGET - width) / 2
    middle, right = round(y + BAR / 2, 1), round(x + width, 1)
    open_end = span.end is None and words.now is not None and words.now <= scale.window.end
    return Bar(
        x=x,
        y=y,
        width=width,
        look=outcome(span.state),
        name=words.span(span),
        url=span.url,
        text=span.label if text_x is not None else "",
        text_x=text_x or 0.0,
        hit_x=round(x - grow, 1),
        hit_width=round(width + 2 * grow, 1) if grow else 0.0,
        hatches=hatches,
        arrow=f"{right},{y} {right + 7},{middle} {right},{round(y + BAR, 1)}" if open_end else "",
        wait_x=scale.x(span.due) if span.due and span.due < span.start else None,
    )


def _room_for(label: str, x: float, width: float, hatches: Sequence[Hatch]) -> float | None:
    """Where the label fits beside the hatches, the first place from the left."""
    left = x
    for hatch in [*sorted(hatches, key=lambda h: h.x), Hatch(x=x + width, width=0.0, look=POSSIBLE)]:
        if hatch.x - left >= len(label) * _LETTER + 12:
            return round(left + 6, 1)
        left = max(left, hatch.x + hatch.width)
    return None


def _hatch(
    stretch: tuple[datetime, datetime | None, bool],
    bar_x: float,
    bar_width: float,
    scale: TimeScale,
    words: Words,
) -> Hatch:
    """Inside its bar, and wide enough to be seen."""
    start, end, certain = stretch
    x, width = _place(start, end or words.now, scale, LEAST_WIDTH)
    x = max(bar_x, min(x, bar_x + bar_width - LEAST_WIDTH))
    width = min(width, bar_x + bar_width - x)
    return Hatch(x=round(x, 1), width=round(width, 1), look=outcome("overlap") if certain else POSSIBLE)


def _place(start: datetime, end: datetime | None, scale: TimeScale, least: float) -> tuple[float, float]:
    """Left edge and width between two instants, moved left where the least width would leave the drawing."""
    left = scale.x(start)
    width = max(least, (scale.x(end) if end else scale.right) - left)
    return round(min(left, scale.right - width), 1), round(width, 1)


def short_name(name: str, letters: int = 19) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def meeting_marks(meetings: Sequence[Meeting], scale: TimeScale, words: Words) -> tuple[MeetingMark, ...]:
    """The overlaps for the lane at the foot, possible ones below proven ones."""
    marks = []
    for meeting in sorted(meetings, key=lambda meeting: meeting.certain):
        x, width = _place(meeting.start, meeting.end or words.now, scale, LEAST_WIDTH)
        look = outcome("overlap") if meeting.certain else POSSIBLE
        marks.append(MeetingMark(x=x, width=width, look=look, name=words.meeting(meeting), url=meeting.url))
    return tuple(marks)
