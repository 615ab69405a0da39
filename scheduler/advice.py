"""Advice on a schedule as it stands in a form: what is valid and will surprise all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models.functions import Now

from locks import InvalidLockBackend, lock_backends
from scheduler.conf import conf
from scheduler.doctor.catalog import queue_of
from scheduler.models import Instance, Schedule
from scheduler.models.tick import Delivery
from scheduler.registry import exclusive_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``field``: of the form, beside which it is told."""

    field: str
    message: str


def advice(schedule: Schedule, alias: str, p95: float | None, lock_name: str = "") -> list[Advice]:
    """``alias`` and ``lock_name`` as chosen; ``p95``: of its latest runs, seconds, None where too few are known."""
    return [*_of_strategy(schedule, alias, p95), *_of_calls(schedule, lock_name), *_of_workers(schedule)]


def _of_strategy(schedule: Schedule, alias: str, p95: float | None) -> Iterator[Advice]:
    try:
        backend = lock_backends[alias]
        ttl = backend.clean_ttl(schedule.ttl)
    except (InvalidLockBackend, ValueError):  # an error of the form
        return
    if not backend.exclusive:
        yield Advice(field="strategy", message=f"Strategy {alias}: overlap is expected. Use it to measure.")
        return
    if p95 is None or backend.session_bound or backend.renewable or p95 <= 0.8 * ttl:
        return
    yield Advice(
        field="ttl",
        message=f"The lease of {ttl:g} s is close to the p95 run time ({p95:.1f} s) and is not renewed. "
        f"Use at least {2 * p95:.0f} s, or a strategy that renews.",
    )


def _of_calls(schedule: Schedule, lock_name: str) -> Iterator[Advice]:
    """Whoever declares a lock name says what the task touches. One made of the task's name says nothing."""
    task = exclusive_tasks().get(schedule.task)
    declared = task.exclusive_lock_name if task else None
    if lock_name and declared and declared != lock_name:
        yield Advice(
            field="lock_name",
            message=f"The task declares the lock name {declared}: calls of it, such as delay(), run under that, and "
            "this schedule would not exclude them.",
        )


def _of_workers(schedule: Schedule) -> Iterator[Advice]:
    """What the live workers tell of themselves; where none does, nothing is known."""
    alive = timedelta(seconds=max(conf("SILENCE_GRACE"), 3 * conf("HEARTBEAT")))
    here = Instance.objects.filter(kind="worker", stopped_at=None, heartbeat_at__gt=Now() - alive)
    queues = list(here.values_list("queues", flat=True))
    if not queues or None in queues or schedule.delivery == Delivery.EVERY_WORKER:
        return
    queue = schedule.queue or queue_of(schedule.task)
    if not any(queue in (found or ()) for found in queues):
        yield Advice(field="queue", message=f"No live worker reads the queue {queue!r}, so nobody would run it.")
