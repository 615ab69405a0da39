"""A crontab of Celery as a cron expression that fires at the same times.

Celery reads some fields that cron does not (``22-2``), so what each field allows is compared, and written out where
the texts differ. One thing cannot be kept: where both days are restricted Celery means *and*, cron means *or*.
"""

from __future__ import annotations

from typing import Any

from celery import current_app
from django.conf import settings

from scheduler import cron
from scheduler.adopting import Unfit

_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_ALL = tuple(map(frozenset, (range(60), range(24), range(1, 32), range(1, 13), range(7))))
_DAYS = (2, 4)


def expression_of(crontab: Any) -> tuple[str, list[str]]:
    """The cron expression of a row's crontab, and what it means otherwise. Raises ``Unfit``."""
    try:
        read = crontab.schedule
    except Exception as trouble:  # Celery's parser, and what Python makes of a strange number
        raise Unfit(f"Its crontab cannot be read: {trouble}. Correct the row.") from trouble
    fields = [_field(getattr(crontab, name), frozenset(getattr(read, name)), n) for n, name in enumerate(_FIELDS)]
    month_day, weekday = (fields[n] for n in _DAYS)
    if month_day.startswith("*") or weekday.startswith("*"):
        return " ".join(fields), []
    changed = (
        f"day of month {month_day} AND day of week {weekday} in Celery is OR in cron: it fires on more days. Take "
        "one of the two out, or let the body look at the other."
    )
    return " ".join(fields), [changed]


def _field(text: str, wanted: frozenset[int], n: int) -> str:
    if wanted == _ALL[n]:
        return "*"  # also of "0-6", which cron would take for a restriction of the days
    text = "".join(text.split())
    alone = " ".join(text if n == place else "*" for place in range(len(_FIELDS)))
    if cron.readable(alone) and cron.allowed(alone)[n] == wanted:
        return text
    return ",".join(map(str, sorted(wanted)))


def zone_of(crontab: Any) -> str:
    """The zone in which beat reads it."""
    aware = getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True)
    return str(crontab.timezone if aware else current_app.timezone)
