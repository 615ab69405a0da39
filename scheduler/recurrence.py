"""Recurrence: when a schedule fires. The one engine that ticker, preview and command line call.

Pure: no ORM, no settings, no clock; time is an argument. A recurrence is one of three kinds:

- ``cron(expression, zone)``: standard crontab(5) in the zone's local time (``scheduler.cron`` has the
  rules);
- ``every(seconds, anchor)``: the grid ``anchor + k * every`` for all whole k, before the anchor too, so
  that any beat on any host, whenever it was started, names the same fire times;
- ``once(at)``: one instant.

Each may have a window [start_at, end_at] outside of which nothing fires. A fire time is UTC, aware and
nominal. For every kind ``next_after(t)`` is the least fire time greater than t, wherever t lies, also in a
repeated hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from typing import Literal

from scheduler import cron as crontab
from scheduler import recurrence_rules as rules
from scheduler.explain import FireTimePreview, RecurrenceWarning
from scheduler.explain import explain as _explain
from scheduler.explain import preview as _preview
from scheduler.explain import warnings as _warnings
from scheduler.recurrence_rules import InvalidRecurrence
from scheduler.zones import clock_changes, zone_named

__all__ = [
    "FireTimePreview",
    "InvalidRecurrence",
    "Recurrence",
    "RecurrenceWarning",
    "Stretch",
    "cron",
    "every",
    "once",
    "smallest_period",
    "warnings",
]

Kind = Literal["cron", "every", "once"]

_TICK = timedelta(microseconds=1)

# Smallest periods are measured from here: four years with a leap day, and both clock changes of each.
_MEASURED_FROM = datetime(2024, 1, 1, tzinfo=UTC)
_MEASURED_UNTIL = datetime(2028, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some fire times in order; ``more`` when the limit cut them short."""

    times: tuple[datetime, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """When a schedule fires. Validates itself: raises ``InvalidRecurrence`` with field, value and remedy.

    ``zone`` is the zone in which cron is read; for the other kinds it only serves display. ``every`` is in
    seconds, at least 1. Instants are aware, and kept in UTC.
    """

    kind: Kind
    expression: str = ""
    zone: str = "UTC"
    every: float | None = None
    anchor: datetime | None = None
    at: datetime | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None

    def __post_init__(self) -> None:
        rules.check_kind(self)
        for name in ("anchor", "at", "start_at", "end_at"):
            object.__setattr__(self, name, rules.in_utc(name, getattr(self, name)))
        rules.check_zone(self.zone)
        if self.kind == "cron":
            rules.check_expression(self.expression)
        if self.every is not None:
            rules.check_every(self.every)
        rules.check_window(self.start_at, self.end_at)

    def next_after(self, t: datetime) -> datetime | None:
        """The first fire time strictly after the aware instant ``t``, UTC; None when there is no more."""
        return next(self._walk(t), None)

    def fire_times(self, after: datetime, until: datetime, limit: int) -> Stretch:
        """The fire times in (after, until], in order, at most ``limit``."""
        found = tuple(islice(self._between(after, until), limit + 1))
        return Stretch(times=found[:limit], more=len(found) > limit)

    def last_in(self, after: datetime, until: datetime) -> datetime | None:
        """The last fire time in (after, until], or None. Looks back in doubling steps, not through all."""
        reach = timedelta(minutes=2)
        low = high = until.astimezone(UTC)
        while low > after:
            low = max(after, high - reach)
            last: datetime | None = None
            for last in self._between(low, high):  # noqa: B007 - the last one is wanted
                pass
            if last is not None:
                return last
            high, reach = low, reach * 2
        return None

    def count_in(self, after: datetime, until: datetime, cap: int) -> tuple[int, bool]:
        """How many fire times (after, until] has, and whether there are more than ``cap``.

        Cron counts no further than ``cap``. Intervals are counted by arithmetic, exactly, without a cap.
        """
        if self.every is not None:
            low, high = self._clipped(after, until)
            return max(0, self._grid(high) - self._grid(low)), False
        found = sum(1 for _ in islice(self._between(after, until), cap + 1))
        return min(found, cap), found > cap

    def preview(self, start: datetime, count: int = 5) -> list[FireTimePreview]:
        """The next ``count`` fire times after ``start``, each with its local time and any clock change."""
        return _preview(self, start, count)

    def explain(self) -> str:
        """The recurrence in English."""
        return _explain(self)

    def _between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return takewhile(lambda fire_time: fire_time <= until, self._walk(after))

    def _walk(self, after: datetime) -> Iterator[datetime]:
        """Fire times after ``after`` inside the window, strictly rising."""
        if after.utcoffset() is None:
            raise ValueError(f"{after!r} is naive; a fire time can only be found after an aware instant")
        low = after.astimezone(UTC)
        if self.start_at is not None:
            low = max(low, self.start_at - _TICK)
        end = self.end_at
        return takewhile(lambda fire_time: end is None or fire_time <= end, self._unbounded(low))

    def _unbounded(self, after: datetime) -> Iterator[datetime]:
        if self.kind == "cron":
            return crontab.walk(crontab.fields_of(self.expression), zone_named(self.zone), after)
        if self.every is not None:
            return self._interval(after)
        return iter([self.at] if self.at is not None and self.at > after else [])

    def _interval(self, after: datetime) -> Iterator[datetime]:
        assert self.anchor is not None
        step, k = self._step, self._grid(after) + 1
        try:
            while True:
                yield self.anchor + k * step
                k += 1
        except OverflowError:
            return

    @property
    def _step(self) -> timedelta:
        return timedelta(seconds=self.every or 0)

    def _grid(self, t: datetime) -> int:
        """The k of the grid's last fire time at or before ``t``, in whole numbers of microseconds."""
        assert self.anchor is not None
        return (t.astimezone(UTC) - self.anchor) // self._step

    def _clipped(self, after: datetime, until: datetime) -> tuple[datetime, datetime]:
        """(after, until] cut to the window."""
        low = after if self.start_at is None else max(after, self.start_at - _TICK)
        high = until if self.end_at is None else min(until, self.end_at)
        return low, max(low, high)


def cron(
    expression: str, zone: str = "UTC", *, start_at: datetime | None = None, end_at: datetime | None = None
) -> Recurrence:
    """A crontab(5) expression (or ``@hourly`` and its kin) in the local time of ``zone``."""
    return Recurrence(kind="cron", expression=expression, zone=str(zone), start_at=start_at, end_at=end_at)


def every(
    seconds: float,
    anchor: datetime,
    *,
    zone: str = "UTC",
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> Recurrence:
    """The grid ``anchor + k * seconds``. ``zone`` is for display."""
    return Recurrence(kind="every", every=seconds, anchor=anchor, zone=str(zone), start_at=start_at, end_at=end_at)


def once(
    at: datetime, *, zone: str = "UTC", start_at: datetime | None = None, end_at: datetime | None = None
) -> Recurrence:
    """The one instant ``at``. ``zone`` is for display."""
    return Recurrence(kind="once", at=at, zone=str(zone), start_at=start_at, end_at=end_at)


def warnings(recurrence: Recurrence, at: datetime) -> list[RecurrenceWarning]:
    """What may surprise in a valid recurrence; clock changes are looked for 400 days from ``at``."""
    return _warnings(recurrence, at)


@lru_cache(maxsize=1024)
def smallest_period(recurrence: Recurrence) -> float | None:
    """The shortest time between two neighbouring fire times, seconds; None where there is at most one.

    Cron is measured: over the first 1,000 fire times of 2024 to 2027 and around each clock change of the
    zone in those years. The window is left out of account.
    """
    if recurrence.every is not None:
        return float(recurrence.every)
    if recurrence.kind == "once":
        return None
    bare = cron(recurrence.expression, recurrence.zone)
    day = timedelta(days=1)
    changes = clock_changes(zone_named(bare.zone), _MEASURED_FROM, _MEASURED_UNTIL)
    stretches = [bare.fire_times(_MEASURED_FROM, _MEASURED_FROM + 12 * 366 * day, 1000).times]
    stretches += [tuple(bare._between(change.at - day, change.at + day)) for change in changes]
    gaps = [(b - a).total_seconds() for times in stretches for a, b in pairwise(times)]
    return min(gaps, default=None)
