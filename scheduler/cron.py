"""Cron: reading crontab(5) and walking its fire times through the clock changes of a zone.

Pure. ``cronsim`` reads the expression and matches it against local calendar time; the rules at a clock
change are Vixie's, stated here so that the set F of fire times depends on nothing but expression and zone:

- *Fixed* (neither the minute nor the hour field starts with ``*``): F is every local time that matches. One
  that does not exist fires when the clocks have gone forward, one that comes twice fires the first time
  only.
- *Wildcard* (the others): F is every instant whose local time matches. A missing hour has none, a repeated
  hour has them twice.

``cronsim`` follows the same rules, with two gaps that are closed here: started inside a repeated hour it
can answer with an instant of the past (dropped), and where clocks change by half an hour
(Australia/Lord_Howe) the answer for a wildcard expression depends on where the walk began. Wildcards are
therefore matched in segments of one offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from scheduler.zones import clock_changes, offset_at

_SECOND = timedelta(seconds=1)

# Any instant will do to ask whether an expression reads and ever fires; this one has a leap day near.
_REFERENCE = datetime(2024, 1, 1)  # noqa: DTZ001 - local calendar time, of no zone

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def fields_of(expression: str) -> str:
    """The five fields, one space apart, with ``@hourly`` and its kin written out. Checks nothing."""
    text = " ".join(expression.split())
    return NICKNAMES.get(text.lower(), text)


def readable(fields: str) -> bool:
    """Whether cronsim accepts the five fields."""
    try:
        CronSim(fields, _REFERENCE)
    except CronSimError:
        return False
    return True


def ever_fires(fields: str) -> bool:
    """Whether a readable expression matches any day of the next fifty years."""
    return next(CronSim(fields, _REFERENCE), None) is not None


def allowed(fields: str) -> tuple[frozenset[int], ...]:
    """The minutes, hours, days, months and weekdays (Sunday is 0) that a readable expression without ``L`` allows."""
    found = CronSim(fields, _REFERENCE)
    weekdays = {day % 7 for day in found.weekdays if isinstance(day, int)}
    return tuple(map(frozenset, (found.minutes, found.hours, found.days, found.months, weekdays)))


def is_fixed(fields: str) -> bool:
    """Whether Vixie's rules treat the expression as fixed times of day rather than as a frequency."""
    minute, hour, *_ = fields.split()
    return not minute.startswith("*") and not hour.startswith("*")


def every_hour(fields: str) -> bool:
    """Whether the hour field allows all hours, so that no clock change can skip a whole match."""
    return len(CronSim(fields, _REFERENCE).hours) == 24


def explain(fields: str) -> str:
    """cronsim's English for a readable expression."""
    return CronSim(fields, _REFERENCE).explain()


def local_matches(fields: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Matching local times in [start, end), all naive: pure calendar, no zone."""
    for match in CronSim(fields, start - _SECOND):
        if match >= end:
            return
        yield match


def walk(fields: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Fire times after the aware instant ``after``, in UTC, strictly rising; ends where the calendar does."""
    steps = _walk_fixed if is_fixed(fields) else _walk_wildcard
    try:
        yield from steps(fields, zone, after.astimezone(UTC))
    except OverflowError:
        return


def _walk_fixed(fields: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    last = after
    for local in CronSim(fields, after.astimezone(zone)):
        instant = local.astimezone(UTC)
        # Not rising: begun inside a repeated hour (the past), or two missing times that end up together.
        if instant > last:
            yield instant
            last = instant


def _walk_wildcard(fields: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """One segment of constant offset after the other; within one, local and real time run alike."""
    clear = after  # no clock change in (start of the segment, clear]
    offset = offset_at(after, zone)
    matches = CronSim(fields, _naive(after, offset))
    while True:
        match = next(matches, None)
        if match is None:
            return
        instant = (match - offset).replace(tzinfo=UTC)
        change = next(clock_changes(zone, clear, instant), None)
        if change is None:
            yield instant
            clear = instant
        else:
            # Start again one second early, so that the first instant of the new offset may match too.
            clear, offset = change.at, change.new
            matches = CronSim(fields, _naive(change.at, offset) - _SECOND)


def _naive(instant: datetime, offset: timedelta) -> datetime:
    return (instant + offset).replace(tzinfo=None)
