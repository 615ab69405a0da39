"""What becomes of a row of django-celery-beat: each of its fields, and what then means something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery import current_app

from scheduler.adopting import Ordinary, Unfit
from scheduler.adopting.crontabs import expression_of, zone_of
from scheduler.manual import lock_name_of
from scheduler.models import Schedule
from scheduler.registry import exclusive_tasks

NAMED = 5  # others that a sentence names: a team may have a row of one task for each of its tenants
_ROUTING = ("exchange", "routing_key", "headers")
_WINDOW = {"start_time": "start_at", "expires": "end_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The schedule of a row, as fields of the form; ``changes``: sentences about what means something else."""

    given: Mapping[str, Any]
    changes: tuple[str, ...]


def plan(row: Any, at: datetime) -> Plan:
    """The schedule that ``row`` (a PeriodicTask) would be at the aware instant ``at``. Raises ``Unfit``."""
    task = exclusive_tasks().get(row.task)
    if task is None:
        raise Ordinary(f"{row.task} is not declared with @exclusive_task here. Declare it, or let it stay a row.")
    _check_routing(row)
    changes: list[str] = []
    given = {
        "task": row.task,
        "lock_name": lock_name_of(task),
        "notes": row.description,
        "args": _json(row, "args", "[]"),
        "kwargs": _json(row, "kwargs", "{}"),
        "queue": row.queue or "",
        "priority": row.priority,
        **{field: getattr(row, name) for name, field in _WINDOW.items()},
        **_grace(row, changes),
        "enabled": False,
    }
    given |= _once(row, given, at, changes) if row.one_off else _recurrence(row, changes)
    changes += _shared(row, given["lock_name"])
    if row.name in current_app.conf.beat_schedule:
        changes.append("an entry of CELERY_BEAT_SCHEDULE writes the row at each start: take it out of the settings.")
    if not row.enabled:
        changes.append("the row is disabled.")
    return Plan(given=given, changes=tuple(changes))


def _shared(row: Any, lock_name: str) -> list[str]:
    """A run that meets another body is prevented, as a call is; a schedule can say that it waits instead."""
    rows = type(row).objects.filter(task=row.task, enabled=True).values_list("name", flat=True)
    stored = Schedule.objects.filter(lock=lock_name).values_list("name", flat=True)
    others = sorted({*rows, *stored} - {row.name})
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    told = (
        f"it shares the lock name with {', '.join(others[:NAMED])}{more}: a run that meets another is "
        "prevented, as a call of the row is. Choose queue_one, or a lock name of its own."
    )
    return [told] if others else []


def _check_routing(row: Any) -> None:
    given = {name: getattr(row, name) for name in _ROUTING}
    if (given["headers"] or "").strip() in ("", "{}", "null"):
        given["headers"] = None
    used = [name for name, value in given.items() if value]
    if used:
        raise Unfit(f"It has {', '.join(used)}, which a schedule has not. Use a queue instead, or let it stay a row.")


def _json(row: Any, field: str, empty: str) -> Any:
    """The error tells no value, which may be a secret."""
    try:
        return json.loads(getattr(row, field) or empty)
    except (ValueError, RecursionError) as problem:
        raise Unfit(f"Its {field} cannot be read as JSON. Correct the row.") from problem


def _grace(row: Any, changes: list[str]) -> dict[str, float]:
    if row.expire_seconds is not None:
        return {"misfire_grace": float(row.expire_seconds)}
    grace = Schedule().misfire_grace
    changes.append(f"its messages never expire; here what nobody began within {grace:g} s is missed (misfire_grace).")
    return {}


def _recurrence(row: Any, changes: list[str]) -> dict[str, Any]:
    if row.crontab:
        expression, otherwise = expression_of(row.crontab)
        changes += otherwise
        return {"cron_expression": expression, "time_zone": zone_of(row.crontab)}
    if row.interval:
        seconds = _seconds(row.interval)
        changes.append("its interval is counted from 1970-01-01 00:00 UTC (anchor), not from its last run.")
        return {"every_seconds": seconds}
    if row.clocked:
        return {"once_at": row.clocked.clocked_time}
    if row.solar:
        raise Unfit("It follows the sun, and a schedule does not. Give it a crontab, or let it stay a row.")
    raise Unfit("It has neither interval, crontab nor clocked time. Correct the row.")


def _seconds(interval: Any) -> int:
    try:
        seconds = timedelta(**{interval.period: interval.every}).total_seconds()
    except OverflowError:
        raise Unfit(f"Its interval of {interval.every} {interval.period} is too long. Correct the row.") from None
    if seconds < 1 or seconds != int(seconds):
        raise Unfit(f"Its interval is {seconds:g} s; a schedule's is whole seconds, from 1. Let it stay a row.")
    return int(seconds)


def _once(row: Any, given: Mapping[str, Any], at: datetime, changes: list[str]) -> dict[str, Any]:
    """One run: at its clocked time, else the next time that its recurrence names."""
    if row.total_run_count:
        raise Unfit("It is a one-off that has run. Delete the row.")
    found = _recurrence(row, [])
    if "once_at" in found:
        return found
    window = {field: given[field] for field in _WINDOW.values()}
    named = Schedule(**found, **window).recurrence().next_after(at)
    if named is None:
        raise Unfit("It is a one-off that never fires any more. Delete the row.")
    changes.append(f"it is a one-off: once, at {named:%Y-%m-%d %H:%M:%S} UTC, the next time that it names.")
    return {"once_at": named, "time_zone": found.get("time_zone", "UTC")}
