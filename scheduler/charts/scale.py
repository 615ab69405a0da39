"""Scales and axes: from time and counts to pixels, with steps that people count in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

_DAY = 86_400
_LETTER, _MARGIN = 8.0, 12.0  # pixels: the widest letter of a label, and what is free right of every plot
_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY, 364 * _DAY),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that a chart shows, [start, end). Raises ``ValueError`` when it is empty or naive."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.utcoffset() is None or self.end.utcoffset() is None:
            raise ValueError(f"a window needs aware instants, not {self.start!r} to {self.end!r}")
        if self.start >= self.end:
            raise ValueError(f"a window must end after it starts, not {self.start} to {self.end}")

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeScale:
    """Maps a window to [left, right] in pixels; instants outside are moved to the edge."""

    window: Window
    left: float
    right: float

    def x(self, instant: datetime) -> float:
        """Pixels from the left of the drawing, to a tenth."""
        share = (instant - self.window.start).total_seconds() / self.window.seconds
        return round(self.left + (self.right - self.left) * min(1.0, max(0.0, share)), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTick:
    """A line with a label at ``at`` pixels along its axis; ``strong`` where a new day begins.

    ``last``: the label ends at its line, the drawing being over before the middle of it.
    """

    at: float
    label: str
    strong: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Something that happened to the whole chart: a change of strategy, a deploy."""

    at: datetime
    label: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerLine:
    """A marker where it is drawn."""

    x: float
    name: str
    url: str


def marker_lines(markers: tuple[Marker, ...], scale: TimeScale, zone: tzinfo) -> tuple[MarkerLine, ...]:
    """The markers inside the window."""
    window = scale.window
    return tuple(
        MarkerLine(x=scale.x(m.at), name=f"{clock(m.at, zone, window)}: {m.label}", url=m.url)
        for m in markers
        if window.start <= m.at < window.end
    )


def bin_seconds(window: Window, most: int = 48) -> int:
    """The finest round step that cuts the window into at most ``most`` bins."""
    wanted = window.seconds / most
    return next((step for step in _STEPS if step >= wanted), _STEPS[-1])


def coarser(step: int, unit: int) -> int:
    """The next longer round step that is made of whole ``unit`` seconds."""
    return next((longer for longer in _STEPS if longer > step and longer % unit == 0), step * 2)


def time_ticks(scale: TimeScale, zone: tzinfo, apart: float = 84) -> tuple[AxisTick, ...]:
    """Ticks at round local times, about ``apart`` pixels from each other or more."""
    step = bin_seconds(scale.window, max(1, int((scale.right - scale.left) / apart)))
    ticks = []
    for instant in _round_times(scale.window, step, zone):
        local = instant.astimezone(zone)
        midnight = local.time() == time()
        words = f"{local.day} {local:%b}" if midnight else f"{local:%H:%M:%S}" if step < 60 else f"{local:%H:%M}"
        at = scale.x(instant)
        last = at + len(words) * _LETTER / 2 > scale.right + _MARGIN
        ticks.append(AxisTick(at=at, label=words, strong=midnight, last=last))
    return tuple(ticks)


def _round_times(window: Window, step: int, zone: tzinfo) -> Iterator[datetime]:
    """Instants whose local time is a multiple of ``step``, through clock changes."""
    if step >= _DAY:
        yield from _round_days(window, step // _DAY, zone)
        return
    at = window.start.astimezone(UTC)
    while at < window.end:
        local = at.astimezone(zone)
        into = timedelta(hours=local.hour, minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        short = -into % timedelta(seconds=step)
        if short:
            at += short  # look again: the clocks may have changed in between
        else:
            yield at
            at += timedelta(seconds=1)


def _round_days(window: Window, days: int, zone: tzinfo) -> Iterator[datetime]:
    day = window.start.astimezone(zone).date()
    while True:
        midnight = datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)
        if midnight >= window.end:
            return
        if day.toordinal() % days == 0 and midnight >= window.start:
            yield midnight
        day += timedelta(days=1)


def count_ticks(most: int, lines: int = 4) -> tuple[int, ...]:
    """0 and round whole numbers up to the first that is not below ``most``."""
    step, size = 1, 1
    while step * lines < most:
        step = {1: 2, 2: 5, 5: 10}[step // size] * size
        size = size * 10 if step == size * 10 else size
    return tuple(range(0, max(1, -(-most // step)) * step + 1, step))


def clock(instant: datetime, zone: tzinfo, window: Window) -> str:
    """The local time of day, with seconds in short windows and with the day in long ones."""
    local = instant.astimezone(zone)
    if window.seconds <= 2 * 3_600:
        return f"{local:%H:%M:%S}"
    return f"{local:%H:%M}" if window.seconds <= _DAY else f"{local.day} {local:%b %H:%M}"


def window_words(window: Window, zone: tzinfo) -> str:
    """``27 Mar 2027, 11:54:50 to 11:55:50 CET``, with both days where there are two."""
    start, end = window.start.astimezone(zone), window.end.astimezone(zone)
    form = "%H:%M:%S" if window.seconds <= 2 * 3_600 else "%H:%M"
    until = f"{end:{form}}" if start.date() == end.date() else f"{_date(end)}, {end:{form}}"
    return f"{_date(start)}, {start:{form}} to {until} {end.tzname()}"


def step_words(seconds: int) -> str:
    """``5 min``, ``30 s``, ``2 h``, ``1 day``."""
    for unit, size in (("day", _DAY), ("h", 3_600), ("min", 60)):
        if seconds % size == 0:
            number = seconds // size
            return f"{number} {unit}s" if unit == "day" and number > 1 else f"{number} {unit}"
    return f"{seconds} s"


def duration_words(seconds: float) -> str:
    """``0.04 s``, ``2.4 s``, ``39 s``, ``4 min 10 s``, ``1 h 5 min``."""
    if 0 < seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3_600)
    minutes, left = divmod(rest, 60)
    parts = [(hours, "h"), (minutes, "min"), (left if not hours else 0, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def _date(day: datetime) -> str:
    return f"{day.day} {day:%b %Y}"
