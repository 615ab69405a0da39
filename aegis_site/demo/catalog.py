"""The demo's schedules: the baseline, each strategy with the tick guard, and a lock on its own."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from scheduler.models import LockName, Schedule
from scheduler.models.tick import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """One schedule of the demo and what it shows."""

    name: str
    lock: str
    task: str
    every: int
    seconds: float
    notes: str
    once_per_tick: bool = True


def _guarded(lock: str, task: str, *, seconds: float, word: str) -> Demonstration:
    return Demonstration(
        name=f"{lock}-{word}",
        lock=lock,
        task=f"aegis_site.demo.tasks.{task}",
        every=2,
        seconds=seconds,
        notes=f"Strategy {lock} and the tick guard; a body of {seconds} s every 2 s.",
    )


DEMONSTRATIONS = (
    Demonstration(
        name="baseline",
        lock="none",
        task="aegis_site.demo.tasks.settle_invoices",
        every=2,
        seconds=1.0,
        once_per_tick=False,
        notes="Stored without a lock and without the tick guard: every worker that hears of a tick runs it.",
    ),
    _guarded("database", "settle_invoices", seconds=3.0, word="long"),
    _guarded("optimistic", "settle_invoices", seconds=0.5, word="short"),
    _guarded("optimistic", "ship_orders", seconds=3.0, word="long"),
    _guarded("advisory", "settle_invoices", seconds=3.0, word="long"),
    _guarded("row_lock", "settle_invoices", seconds=3.0, word="long"),
    _guarded("redis", "settle_invoices", seconds=3.0, word="long"),
    _guarded("redlock", "settle_invoices", seconds=3.0, word="long"),
    Demonstration(
        name="lock-only",
        lock="redis",
        task="aegis_site.demo.tasks.send_digest",
        every=2,
        seconds=0.0,
        once_per_tick=False,
        notes="A lock without the tick guard and a very short body: each delivery takes a free lock in turn.",
    ),
)


def seed(aliases: set[str]) -> list[Schedule]:
    """Store the demo's schedules, or put them back as they were; strategies that are not set are left out."""
    with transaction.atomic():
        return [_store(wanted) for wanted in DEMONSTRATIONS if wanted.lock in aliases]


def _store(wanted: Demonstration) -> Schedule:
    lock, _ = LockName.objects.update_or_create(name=f"demo.{wanted.name}", defaults={"alias_wanted": wanted.lock})
    schedule, _ = Schedule.objects.update_or_create(
        name=wanted.name,
        defaults={
            "task": wanted.task,
            "kwargs": {"seconds": wanted.seconds},
            "every_seconds": wanted.every,
            "cron_expression": "",
            "once_at": None,
            "lock": lock,
            "once_per_tick": wanted.once_per_tick,
            "delivery": Delivery.EVERY_WORKER,
            "misfire_grace": 30,
            "notes": wanted.notes,
            "enabled": True,
        },
    )
    return schedule
