"""What a recurrence must obey, each rule with the sentence that a person reads when it is broken. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from scheduler import cron, cron_problems
from scheduler.zones import UnknownZone, zone_named

if TYPE_CHECKING:
    from scheduler.recurrence import Recurrence

SHORTEST_EVERY = 1  # second: a beat's pass
LONGEST_EVERY = 36_525 * 86_400  # a century: longer is a mistake, and keeps sums within the calendar
YEARS = range(1900, 3000)  # of instants: the calendar ends with 9999, and zones and sums need room
END = datetime(YEARS.stop, 1, 1, tzinfo=UTC)

_FIELDS_OF_KIND = {"cron": ("expression",), "every": ("every", "anchor"), "once": ("at",)}
_TITLES = {
    "expression": "A cron expression",
    "every": "An interval",
    "anchor": "An anchor",
    "at": "An instant",
}


class InvalidRecurrence(ValueError):
    """A recurrence that cannot be. ``field`` is an argument of ``Recurrence``; ``message`` has the remedy."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


def check_kind(recurrence: Recurrence) -> None:
    """A recurrence says one thing: the fields of its kind are given, those of the others are not."""
    if recurrence.kind not in _FIELDS_OF_KIND:
        raise InvalidRecurrence("kind", f"Kind must be cron, every or once; it is {recurrence.kind!r}.")
    needed = _FIELDS_OF_KIND[recurrence.kind]
    for name, title in _TITLES.items():
        given = getattr(recurrence, name) not in (None, "")
        if name in needed and not given:
            raise InvalidRecurrence(name, f"{title} is missing; give one.")
        if name not in needed and given:
            raise InvalidRecurrence(
                name, f"{title} does not go with kind {recurrence.kind!r}; leave one of the two out."
            )


def in_utc(field: str, value: datetime | None) -> datetime | None:
    """The instant in UTC. A naive one is refused: nobody can say when it is."""
    if value is None:
        return None
    if value.utcoffset() is None:
        raise InvalidRecurrence(field, f"{value.isoformat()} has no time zone; give an aware instant.")
    check_year(field, value)
    return value.astimezone(UTC)


def check_year(field: str, value: datetime | None) -> None:
    """The instant is one that every zone can show; "for ever" is said by leaving it out."""
    if value is not None and value.year not in YEARS:
        raise InvalidRecurrence(
            field,
            f"{value.isoformat()} is too far away; give a year from {YEARS[0]} to {YEARS[-1]}, or no end for ever.",
        )


def check_zone(zone: str) -> None:
    """The zone is an IANA name that this machine's tzdata knows; a close one is suggested."""
    try:
        zone_named(zone)
    except UnknownZone as exc:
        hint = f"did you mean {exc.suggestion}?" if exc.suggestion else "use a name such as Europe/Berlin."
        raise InvalidRecurrence("zone", f"Time zone {zone!r} is not known; {hint}") from exc


def check_expression(expression: str) -> None:
    """The expression reads as crontab(5) and fires at all."""
    if not isinstance(expression, str):
        raise InvalidRecurrence("expression", f"A cron expression is text; you gave {expression!r}.")
    message = _expression_problem(expression)
    if message:
        raise InvalidRecurrence("expression", message)


@lru_cache(maxsize=1024)
def _expression_problem(expression: str) -> str:
    return cron_problems.problem(cron.fields_of(expression))


def check_every(seconds: float) -> None:
    """The interval is a number of seconds from one second to a century."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        raise InvalidRecurrence("every", f"An interval is a number of seconds; you gave {seconds!r}.")
    if not SHORTEST_EVERY <= seconds <= LONGEST_EVERY:
        raise InvalidRecurrence("every", f"An interval is 1 second to a century; you gave {seconds:g} seconds.")


def check_window(start_at: datetime | None, end_at: datetime | None) -> None:
    """A window does not end before it starts."""
    if start_at and end_at and end_at < start_at:
        window = f"ends {end_at.isoformat()}, before it starts {start_at.isoformat()}"
        raise InvalidRecurrence("end_at", f"The window {window}; swap them.")
