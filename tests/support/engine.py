"""Schedules, ticks and deliveries for tests of the engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from locks import lock_backends
from scheduler.delivery import Delivery, read_stamp, stamp, task_id_of
from scheduler.minting import mint
from scheduler.models import LockName, Schedule, Tick
from scheduler.states import TickState


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def make_schedule(name: str = "nightly", *, alias: str = "database", lock_name: str = "", **fields: Any) -> Schedule:
    """A schedule that never comes due by itself unless the fields say so."""
    lock, _ = LockName.objects.get_or_create(
        name=lock_name or f"lock.{name}", defaults={"alias_wanted": alias, "alias_in_force": alias}
    )
    defaults: dict[str, Any] = {"task": "aegis_site.demo.tasks.send_digest", "lock": lock}
    if not {"cron_expression", "every_seconds", "once_at"}.intersection(fields):
        defaults["once_at"] = datetime(2100, 1, 1, tzinfo=UTC)
    schedule = Schedule.objects.create(name=name, **{**defaults, **fields})
    schedule.refresh_from_db()
    return schedule


def store(schedule: Schedule, **fields: Any) -> None:
    """Write columns past the trigger that follows edits."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE aegis_scheduler_schedule DISABLE TRIGGER USER")
        Schedule.objects.filter(pk=schedule.pk).update(**fields)
        cursor.execute("ALTER TABLE aegis_scheduler_schedule ENABLE TRIGGER USER")


def mint_all() -> None:
    """Mint pass after pass until nothing is due, each tick being over before the next pass."""
    now = database_now()
    while mint(now).ticks:
        over = {"state": TickState.CLOSED, "outcome": "executed", "closed_at": now}
        Tick.objects.filter(outcome="", manual_key=None).update(**over)


def make_tick(schedule: Schedule, *, seconds_ago: float = 0.0, **fields: Any) -> Tick:
    """A planned tick of the schedule, stamped as the ticker does it."""
    now = database_now()
    alias = schedule.lock.alias_in_force or schedule.lock.alias_wanted
    defaults: dict[str, Any] = {
        "schedule": schedule,
        "schedule_name": schedule.name,
        "fire_time": now - timedelta(seconds=seconds_ago),
        "task": schedule.task,
        "args": schedule.args,
        "kwargs": schedule.kwargs,
        "queue": schedule.queue,
        "delivery": schedule.delivery,
        "lock_name": schedule.lock_id,
        "lock_alias": alias,
        "ttl": schedule.ttl or lock_backends[alias].ttl,
        "once_per_tick": schedule.once_per_tick,
        "grace": schedule.misfire_grace,
        "overlap": schedule.overlap,
        "max_attempts": schedule.max_attempts,
        "dispatch_at": now + timedelta(seconds=60),
        "deadline": now + timedelta(seconds=schedule.misfire_grace),
        "state": TickState.PLANNED,
    }
    return Tick.objects.create(**{**defaults, **fields})


def delivery_of(tick: Tick, worker: str = "worker@test", **changes: Any) -> Delivery:
    """What a worker that received the tick's message would hold."""
    received = read_stamp(stamp(tick), task_id=task_id_of(tick), worker=worker)
    return replace(received, **changes)
