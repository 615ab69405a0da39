"""What is wrong with a crontab expression, in words that name the field, the value and the remedy.

Pure. ``cronsim`` decides what is valid; this only explains a refusal. The field at fault is found by giving
cronsim one field at a time, and the term at fault by giving it one term at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scheduler import cron

_RANGE = re.compile(r"([^-]+)-([^-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    allowed: str
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int | None:
        """The value of a number or of a name such as MON; None for anything else."""
        if text.upper() in self.names:
            return self.names.index(text.upper()) + (1 if self.name == "Month" else 0)
        return int(text) if text.isascii() and text.isdigit() else None


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS = (
    _Field(name="Minute", low=0, high=59, allowed="0-59"),
    _Field(name="Hour", low=0, high=23, allowed="0-23"),
    _Field(name="Day of month", low=1, high=31, allowed="1-31, or L for the last day"),
    _Field(name="Month", low=1, high=12, allowed="1-12 or JAN-DEC", names=_MONTHS),
    _Field(name="Day of week", low=0, high=7, allowed="0-7 or SUN-SAT (0 and 7 are Sunday)", names=_DAYS),
)
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTH_WORDS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def problem(fields: str) -> str:
    """Why the expression is refused, one sentence with the remedy; empty where it is good."""
    parts = fields.split()
    if fields.startswith("@"):
        return f"{fields} is not known; write five fields, or one of {', '.join(cron.NICKNAMES)}."
    if len(parts) != 5:
        return _wrong_count(fields, len(parts))
    for position, part in enumerate(parts):
        if not _reads(position, part):
            return _field_problem(position, part)
    if not cron.readable(fields) or not cron.ever_fires(fields):
        return _never(parts)
    return ""


def _wrong_count(fields: str, count: int) -> str:
    wanted = "minute, hour, day of month, month and day of week"
    if count == 6:
        return f"Cron needs five fields ({wanted}); you typed six. For seconds use an interval instead."
    return f"Cron needs five fields ({wanted}); you typed {count}: {fields!r}."


def _reads(position: int, part: str) -> bool:
    return cron.readable(" ".join("*" if at != position else part for at in range(5)))


def _field_problem(position: int, part: str) -> str:
    field = _FIELDS[position]
    term = next((term for term in part.split(",") if not _reads(position, term)), part)
    if not term:
        return f"{field.name} has an empty place in {part!r}; remove the extra comma."
    body, slash, step = term.partition("/")
    if slash and not (step.isascii() and step.isdigit() and int(step) > 0):
        return f"{field.name} step must be a whole number from 1; you typed {term}."
    if slash and not body:
        return f"{field.name} step needs a range before it: write */{step}; you typed {term}."
    return _value_problem(field, term, body)


def _value_problem(field: _Field, term: str, body: str) -> str:
    span = _RANGE.fullmatch(body)
    for end in span.groups() if span else ():
        value = field.number(end)
        if value is None or not field.low <= value <= field.high:
            return f"{field.name} must be {field.allowed}; you typed {end if value is not None else term}."
    if span and _reads_backwards(field, *span.groups()):
        return f"{field.name} range {body} runs backwards; write {_around(field, *span.groups())}."
    return f"{field.name} must be {field.allowed}; you typed {term}."


def _reads_backwards(field: _Field, first: str, last: str) -> bool:
    return (field.number(first) or 0) > (field.number(last) or 0)


def _around(field: _Field, first: str, last: str) -> str:
    """The two ranges that a backwards range most likely meant."""
    if field.name == "Day of week" and field.number(last) == 0:
        return f"{field.number(first)}-7"
    top = {"Day of week": 6}.get(field.name, field.high)
    return f"{first}-{top},{field.low}-{last}"


def _never(parts: list[str]) -> str:
    """Name the month that lacks the day, where that is the reason."""
    days = [int(number) for number in re.findall(r"\d+", parts[2].partition("/")[0])]
    months = _months(parts[3])
    if days and months and min(days) > max(_MONTH_LENGTHS[month - 1] for month in months):
        names = [_MONTH_WORDS[month - 1] for month in months]
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        verb = "has" if len(names) == 1 else "have"
        return f"This never fires: {listed} {verb} no day {min(days)}."
    return "This never fires: day of month, month and day of week match no common day in fifty years."


def _months(part: str) -> list[int]:
    """The months of a simple month field, in order; empty where it is not a list of values or ranges."""
    found: list[int] = []
    for term in part.split(","):
        ends = [_FIELDS[3].number(end) for end in term.split("-")]
        low, high = ends[0], ends[-1]
        if low is None or high is None:
            return []
        found += range(low, high + 1)
    return sorted(set(found))
