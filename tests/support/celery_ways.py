"""Ticks sent to real workers, and what became of them."""

from __future__ import annotations

import json
from typing import Any

from aegis_site.demo.models import Effect
from scheduler.models import Execution, Tick
from scheduler.publisher import publish
from scheduler.states import ExecutionState
from tests.support import wait_until
from tests.support.doors import open_door
from tests.support.engine import make_schedule, make_tick

TASKS = "tests.support.celery_tasks"
WORKER = ("-I", TASKS)

LONG = 120.0  # seconds; longer than any wait of a test, which lets the body out
# A message that is not acked comes again after two seconds.
IMPATIENT = {"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def configured(**settings: Any) -> tuple[str, ...]:
    """The last arguments of a worker: Celery settings of its own."""
    return ("--", *(f"{name}=(json){json.dumps(value)}" for name, value in settings.items()))


def send(task: str, *, name: str = "", ttl: float = 3.0, copies: int = 1, **fields: Any) -> Tick:
    """Publish one tick of a schedule of its own; ``fields``: of the schedule. Its messages are never lost."""
    number = Tick.objects.count()
    tick = make_tick(make_schedule(name or f"{task}-{number}", ttl=ttl, task=f"{TASKS}.{task}", **fields))
    for _ in range(copies):
        assert publish([tick]).ids == [tick.id]
    return tick


def states(tick: Tick) -> list[str]:
    return list(Execution.objects.filter(tick=tick).order_by("id").values_list("state", flat=True))


def bodies(tick: Tick) -> int:
    return Execution.objects.filter(tick=tick, began=True).count()


def seen(tick: Tick) -> str:
    """For the message of a wait."""
    tick.refresh_from_db()
    rows = Execution.objects.filter(tick=tick).order_by("id").values_list("state", "attempt", "reason", "error")
    return f"{tick.state} {tick.outcome!r} {tick.reason!r} attempt {tick.attempt}: {list(rows)}"


def execution_of(tick: Tick, *wanted: ExecutionState, timeout: float = 40) -> Execution:
    """The first execution of a tick that comes to one of the states."""
    found = wait_until(
        lambda: Execution.objects.filter(tick=tick, state__in=wanted).first(),
        timeout=timeout,
        message=lambda: f"{[one.value for one in wanted]}, seen: {seen(tick)}",
    )
    assert found is not None
    return found


def inside(tick: Tick) -> Execution:
    """The execution of a tick whose body is inside: its first effect is there."""
    running = execution_of(tick, ExecutionState.RUNNING)
    wait_until(lambda: Effect.objects.filter(schedule=tick.schedule_name).exists(), message="the body is inside")
    return running


def let_out(*ticks: Tick) -> None:
    """Let the bodies of the ticks end that would be inside for long. Whatever comes later under them is short."""
    for tick in ticks:
        wait_until(Effect.objects.filter(schedule=tick.schedule_name).exists, message="the body is inside")
        open_door(tick.schedule_name)


def closed(tick: Tick, timeout: float = 40) -> Tick:
    """The tick when it is over."""
    wait_until(
        lambda: Tick.objects.filter(pk=tick.pk).exclude(outcome="").exists(),
        timeout=timeout,
        message=lambda: f"the tick is over, seen: {seen(tick)}",
    )
    tick.refresh_from_db()
    return tick
