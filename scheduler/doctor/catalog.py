"""What is scheduled, as one list that several topics judge: the rows of the catalog beside the tasks they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from celery import current_app

from locks import InvalidLockBackend, lock_backends
from locks.connection import execute
from scheduler import calls, manual
from scheduler.models import Schedule
from scheduler.models.tick import Delivery
from scheduler.recurrence import smallest_period
from scheduler.registry import exclusive_tasks

PATIENCE = 2.5  # seconds for one answer of the database

# In: how the key of a call begins. Out: task, seconds inside the body that one in a hundred exceeded, whether one of
# them was a call. Of seven days, and of the last 50,000 executions at most: a figure, not a report.
_OBSERVED = """
SELECT t.task, percentile_cont(0.99) WITHIN GROUP (ORDER BY e.ran),
       coalesce(bool_or(starts_with(t.manual_key, %(call)s::text)), false)
FROM (SELECT tick_id, ran FROM aegis_scheduler_execution
      WHERE recorded_at > statement_timestamp() - interval '7 days' AND ran IS NOT NULL
      ORDER BY recorded_at DESC LIMIT 50000) e
JOIN aegis_scheduler_tick t ON t.id = e.tick_id GROUP BY t.task
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """One schedule that is switched on, and its task as this process knows it. Times are seconds."""

    name: str
    task: str
    job: tuple[str, str, str]  # task, args, kwargs
    lock_name: str
    alias: str
    ttl: float  # the schedule's own, else the strategy's; 0: the strategy is not in LOCKS
    guarded: bool
    broadcast: bool
    queue: str
    grace: float
    period: float | None = None  # the shortest between two fire times
    registered: bool = True
    time_limit: float | None = None
    acks_late: bool = False
    on_lost: str = ""
    # Of its calls: the decorator's, or made of the task's name where calls ran lately. None: nobody would miss it.
    own_lock_name: str | None = None
    observed: float | None = None  # 99 of 100 bodies ended within

    @property
    def longest(self) -> float:
        """How long a body of it may be inside, as far as anything says so: limit, or what was seen."""
        return max(self.time_limit or 0.0, self.observed or 0.0)


def read() -> list[Scheduled]:
    """Everything that is switched on. Raises what the database, or the import of a task, raises."""
    tasks = exclusive_tasks()
    found = execute(_OBSERVED, {"call": calls.PREFIX}, timeout=PATIENCE)
    observed = {task: (float(seconds), called) for task, seconds, called in found}
    rows = Schedule.objects.filter(enabled=True).select_related("lock").order_by("name")
    return [_scheduled(row, tasks, observed) for row in rows]


def _scheduled(row: Schedule, tasks: Mapping[str, Any], observed: Mapping[str, tuple[float, bool]]) -> Scheduled:
    task, alias = tasks.get(row.task), row.lock.alias_in_force or row.lock.alias_wanted
    longest, called = observed.get(row.task, (None, False))
    return Scheduled(
        name=row.name,
        task=row.task,
        job=(row.task, json.dumps(row.args), json.dumps(row.kwargs, sort_keys=True)),
        lock_name=row.lock_id,
        alias=alias,
        ttl=row.ttl or _ttl_of(alias),
        guarded=row.once_per_tick,
        broadcast=row.delivery == Delivery.EVERY_WORKER,
        queue=row.queue or queue_of(row.task),
        grace=row.misfire_grace,
        period=_period(row.cron_expression, row.time_zone, row.every_seconds),
        observed=longest,
        **_of_task(task, called),
    )


def _of_task(task: Any, called: bool) -> dict[str, Any]:
    if task is None:
        return {"registered": False}
    limit = task.time_limit or current_app.conf.task_time_limit
    return {
        "time_limit": float(limit) if limit else None,
        "acks_late": bool(task.acks_late),
        "on_lost": str(task.exclusive_on_lost),
        "own_lock_name": _of_calls(task) if called else task.exclusive_lock_name,
    }


def _of_calls(task: Any) -> str | None:
    try:
        return manual.lock_name_of(task)
    except ValueError:  # they are refused by now
        return None


def _ttl_of(alias: str) -> float:
    try:
        return lock_backends[alias].ttl
    except InvalidLockBackend:
        return 0.0


def queue_of(task: str) -> str:
    """The queue that a task's declaration names, else the one of Celery's routes."""
    own = getattr(current_app.tasks.get(task), "queue", None)
    queue = own or current_app.amqp.router.route({}, task).get("queue")
    return str(getattr(queue, "name", queue) or current_app.conf.task_default_queue)


@lru_cache(maxsize=10_000)
def _period(cron: str, zone: str, every: int | None) -> float | None:
    """By the engine that fires; ``None`` for a row that cannot be read, or that fires once."""
    if every:
        return float(every)
    if not cron:
        return None
    try:
        return smallest_period(Schedule(cron_expression=cron, time_zone=zone).recurrence())
    except ValueError:  # told as broken
        return None
