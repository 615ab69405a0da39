"""What others changed while a form was open: an older form is not stored over it without a word.

A form carries what it showed: the number of the newest change row, and a digest of each value, by which no value can
be told. When it comes back, the schedule's row and its lock names are locked, and each value that is another by now,
and not what is typed, is named with who changed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils.crypto import salted_hmac

from scheduler.models import LockName, Schedule, ScheduleChange

_KEPT_AS = {"lock_name": "lock_id"}  # of the form -> of change rows
MOST = 100  # change rows looked at for who it was


def hold(pk: int, other_name: str) -> Schedule | None:
    """The schedule as stored, locked with its lock name and ``other_name``; None where it is gone. In a transaction.

    Names come first, as they do for whoever retargets one; a beat passes both over meanwhile.
    """
    names = LockName.objects.filter(name=other_name) | LockName.objects.filter(schedules=pk)
    list(LockName.objects.filter(pk__in=names.values("pk")).order_by("name").select_for_update(no_key=True))
    locked = Schedule.objects.select_for_update(no_key=True, of=("self",)).select_related("lock")
    return locked.filter(pk=pk).first()


def shown(schedule: Schedule, names: Iterable[str]) -> str:
    """What goes with a form that shows these fields of a stored schedule."""
    newest = ScheduleChange.objects.filter(schedule=schedule).order_by("-pk").values_list("pk", flat=True).first()
    return ".".join([str(newest or 0), *(_digest(name, _stored(schedule, name)) for name in names)])


def moved(told: str, schedule: Schedule, typed: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Fields that are neither as the form showed them nor as they are typed; none where it does not say."""
    names = list(names)
    digests = told.split(".")[1:]
    if len(digests) != len(names):
        return []
    found = []
    for name, digest in zip(names, digests, strict=True):
        now = _digest(name, _stored(schedule, name))
        if name in typed and now not in (digest, _digest(name, typed[name])):
            found.append(name)
    return found


def said(told: str, schedule: Schedule, fields: Iterable[str]) -> str:
    """The sentence about fields that moved, with who it was by the change history."""
    since = told.partition(".")[0]
    newer = ScheduleChange.objects.filter(schedule=schedule, pk__gt=int(since) if _is_number(since) else 0)
    who: dict[str, str] = {}
    for change in newer.order_by("-pk")[:MOST]:
        for name in change.after:
            who.setdefault(name, f"by {change.who or 'an unnamed user'} at {change.changed_at:%H:%M:%S} UTC")
    each = [f"{name.replace('_', ' ')} ({who.get(_KEPT_AS.get(name, name), 'past these pages')})" for name in fields]
    return (
        f"Nothing was stored. While this form was open, others changed: {', '.join(each)}. What you typed is still "
        "here: set these fields as they should be, and save again. What stands in the form then holds."
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _stored(schedule: Schedule, name: str) -> Any:
    if name == "strategy":
        return schedule.lock.alias_wanted
    return getattr(schedule, _KEPT_AS.get(name, name))


def _digest(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        value = value.astimezone(UTC).isoformat()
    text = json.dumps([name, value], sort_keys=True, default=str)
    return salted_hmac("aegis.schedule.form", text).hexdigest()[:16]
