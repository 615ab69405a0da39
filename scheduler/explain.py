"""What a recurrence means, for people: English, the next runs with what a clock change does, and warnings.

Pure, and asks the recurrence itself for its fire times: a preview can show nothing that the ticker would
not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from scheduler import cron
from scheduler.recurrence_rules import END
from scheduler.zones import ClockChange, clock_changes, zone_named

if TYPE_CHECKING:
    from scheduler.recurrence import Recurrence

LOOK_AHEAD = timedelta(days=400)

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True, kw_only=True)
class FireTimePreview:
    """One coming fire time: ``at`` in UTC, ``local`` in the schedule's zone, ``note`` at a clock change.

    ``seconds``: whether it is written with them, because one of those beside it has some.
    """

    at: datetime
    local: datetime
    note: str = ""
    seconds: bool = False

    @property
    def offset(self) -> str:
        """The local clock's distance from UTC, as ``+02:00``."""
        return self.local.isoformat()[-6:]

    @property
    def local_text(self) -> str:
        """``Sun 28 Mar 2027 03:00 (+02:00)``, or with seconds."""
        clock = "%H:%M:%S" if self.seconds else "%H:%M"
        return f"{self.local:%a} {self.local.day} {self.local:%b %Y} {self.local:{clock}} ({self.offset})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrenceWarning:
    """What surprises people in a valid recurrence. ``code`` is stable, ``message`` a sentence or two."""

    code: str
    field: str
    message: str


def explain(recurrence: Recurrence) -> str:
    """The recurrence in English; the zone is left to the caller, who shows it beside."""
    if recurrence.kind == "cron":
        return cron.explain(cron.fields_of(recurrence.expression))
    if recurrence.every is not None:
        return f"Every {duration(recurrence.every)}"
    assert recurrence.at is not None
    local = recurrence.at.astimezone(zone_named(recurrence.zone))
    return f"Once, on {_day(local)} at {local:%H:%M:%S}"


def duration(seconds: float) -> str:
    """``5 minutes``, ``1 hour 30 minutes``; "1 minute" loses its number, as in "every minute"."""
    parts, left = [], seconds
    for unit, size in _UNITS:
        number = left // size if size > 1 else left
        left -= number * size
        if number:
            parts.append(f"{number:g} {unit}{'' if number == 1 else 's'}")
    return parts[0].removeprefix("1 ") if len(parts) == 1 else " ".join(parts)


def preview(recurrence: Recurrence, start: datetime, count: int) -> list[FireTimePreview]:
    """The next ``count`` fire times after ``start``."""
    times = recurrence.fire_times(start, END, count).times
    local = [at.astimezone(zone_named(recurrence.zone)) for at in times]
    seconds = any(one.second or one.microsecond for one in local)
    return [
        FireTimePreview(at=at, local=here, note=_note(recurrence, previous, at), seconds=seconds)
        for previous, at, here in zip((start, *times), times, local, strict=False)
    ]


def _note(recurrence: Recurrence, previous: datetime, at: datetime) -> str:
    """What the clocks did to this fire time, or to matches between it and the one before."""
    fields, fixed = _cron_fields(recurrence)
    if fields:
        for change, missing in _missing(recurrence, fields, previous, at):
            if fixed and at == change.at:
                return f"clocks go forward: {_times(missing)} does not exist"
            if not fixed:
                return f"clocks go forward: {_times(missing)} is skipped"
    local = at.astimezone(zone_named(recurrence.zone))
    if local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset():
        return ""
    which = "this is the second" if local.fold else "this is the first"
    which = "runs once, the first time" if fixed else which
    return f"clocks go back: {local:%H:%M} comes twice, {which}"


def warnings(recurrence: Recurrence, at: datetime) -> list[RecurrenceWarning]:
    """Warnings of a valid recurrence, most surprising first."""
    fields, _ = _cron_fields(recurrence)
    if not fields:
        return []
    found = [*_either_day(fields), *_uneven_steps(fields), *_clock_change_warnings(recurrence, fields, at)]
    return [RecurrenceWarning(code=code, field="expression", message=message) for code, message in found]


def _cron_fields(recurrence: Recurrence) -> tuple[str, bool]:
    """The five fields and whether they are fixed times; empty for other kinds."""
    if recurrence.kind != "cron":
        return "", False
    fields = cron.fields_of(recurrence.expression)
    return fields, cron.is_fixed(fields)


def _either_day(fields: str) -> Iterator[tuple[str, str]]:
    _, _, day, _, weekday = fields.upper().split()
    if day.startswith("*") or weekday.startswith("*"):
        return
    message = (
        "Day of month and day of week are combined with OR, as in crontab(5): this fires on "
        f"{_days(day)} and on {_weekdays(weekday)}. (Celery's crontab means AND.)"
    )
    yield "either-day", message


def _days(part: str) -> str:
    if part.replace(",", "").isdigit():
        return _listed([f"every {_ordinal(int(day))}" for day in part.split(",")])
    return f"every day of month in {part}"


def _weekdays(part: str) -> str:
    if part.replace(",", "").isdigit():
        return _listed([f"every {_WEEKDAYS[int(day)]}" for day in part.split(",")])
    names = {name[:3].upper(): f"every {name}" for name in _WEEKDAYS}
    if all(term in names for term in part.split(",")):
        return _listed([names[term] for term in part.split(",")])
    return f"every day of week in {part}"


def _uneven_steps(fields: str) -> Iterator[tuple[str, str]]:
    minute, hour, day, month, _ = fields.split()
    for part, unit, size, whole, first in (
        (minute, "minute", 60, "hour", "minute 0"),
        (hour, "hour", 24, "day", "hour 0"),
        (month, "month", 12, "year", "January"),
    ):
        step = _step(part)
        if step >= size:
            yield "uneven-step", f"{part} fires only in {first}: the step is as long as the {whole}."
        elif step and size % step:
            gap = size - (size - 1) // step * step
            plural = "" if gap == 1 else "s"
            yield "uneven-step", f"{part} restarts every {whole}: the last gap is {gap} {unit}{plural}."
    if _step(day) > 1:
        yield "uneven-step", f"{day} restarts every month: the last gap depends on the month's length."


def _step(part: str) -> int:
    """n of ``*/n``, else 0."""
    head, _, tail = part.partition("/")
    return int(tail) if head == "*" and tail.isdigit() else 0


def _clock_change_warnings(recurrence: Recurrence, fields: str, at: datetime) -> Iterator[tuple[str, str]]:
    """The first missing and the first repeated local time of the next 400 days."""
    until = at + LOOK_AHEAD
    for change, times in _missing(recurrence, fields, at, until):
        yield "clocks-forward", _forward_warning(recurrence, change, times, cron.is_fixed(fields))
        break
    for change, times in _touched(recurrence, fields, at, until, forward=False):
        yield "clocks-back", _back_warning(recurrence, change, times, cron.is_fixed(fields))
        break


def _forward_warning(recurrence: Recurrence, change: ClockChange, times: list[datetime], fixed: bool) -> str:
    end = change.span[1]
    what = f"does not exist and runs at {end:%H:%M}" if fixed else "is skipped"
    return (
        f"{_times(times)} {what} on {_day(times[0])} in {recurrence.zone}, where the clocks go forward. "
        f"Use UTC or a time from {end:%H:%M}."
    )


def _back_warning(recurrence: Recurrence, change: ClockChange, times: list[datetime], fixed: bool) -> str:
    what = "runs once, the first time" if fixed else "runs both times"
    return (
        f"{_times(times)} comes twice on {_day(times[0])} in {recurrence.zone}, "
        f"where the clocks go back, and {what}. Use UTC or a time from {change.span[1]:%H:%M}."
    )


def _missing(
    recurrence: Recurrence, fields: str, after: datetime, until: datetime
) -> Iterator[tuple[ClockChange, list[datetime]]]:
    return _touched(recurrence, fields, after, until, forward=True)


def _touched(
    recurrence: Recurrence, fields: str, after: datetime, until: datetime, *, forward: bool
) -> Iterator[tuple[ClockChange, list[datetime]]]:
    """Clock changes in (after, until] whose missing or repeated local times match, with those times.

    None for an expression that allows every hour in wildcards: it follows real time and no run is moved.
    """
    if cron.every_hour(fields) and not cron.is_fixed(fields):
        return
    for change in clock_changes(zone_named(recurrence.zone), after, until):
        times = list(cron.local_matches(fields, *change.span)) if change.forward is forward else []
        if times:
            yield change, times


def _times(times: list[datetime]) -> str:
    first, last = times[0], times[-1]
    return f"{first:%H:%M}" if first == last else f"{first:%H:%M} to {last:%H:%M}"


def _day(day: datetime) -> str:
    return f"{day.day} {day:%b %Y}"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
