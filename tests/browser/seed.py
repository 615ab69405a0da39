"""Rows for the pages, around a frozen "now": every outcome, collisions, a pause, a change of strategy, a fleet.

The figures that the tests name stand here as constants.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler.models import Execution, Instance, Schedule, ScheduleChange, Tick
from tests.support.engine import database_now, make_schedule, make_tick

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)
AT = "2027-03-27T12:00:00Z"
WORKERS = ("worker@0", "worker@1", "worker@2", "worker@3")
PROVEN, POSSIBLE = 2, 1
HOSTILE = "<script>window.hacked = 1</script>"


def rows() -> None:
    """Store all of it: five schedules, their ticks of the last day, four workers and a beat."""
    fleet()
    colliding()
    guarded()
    paused()
    broken_runs()
    other_states()


def fleet() -> None:
    """Alive at noon and now, so that the strip above each page is calm whenever the tests run."""
    seen = max(NOON, database_now())
    for number, name in enumerate((*WORKERS, "beat@a1")):
        kind = "beat" if name.startswith("beat") else "worker"
        Instance.objects.create(
            kind=kind, name=name, host="a1", pid=61 + number, version="0.1.0", pool="prefork", concurrency=2,
            queues=["celery"], clock_offset=0.002, clock_error=0.001,
            started_at=NOON - timedelta(days=1), heartbeat_at=seen,
        )  # fmt: skip


def colliding() -> None:
    """``cleanup`` has neither lock nor tick guard: three overlaps, two of them proven."""
    schedule = make_schedule(
        "cleanup", alias="none", once_per_tick=False, delivery="every_worker", cron_expression="*/5 * * * *"
    )
    for number in range(40, 2, -1):
        ran(tick(schedule, -300 * number), "worker@0", 0.1, 3.0)
    for number, (first, second) in enumerate([((0.1, 4.0), (0.2, 3.5)), ((0.1, 5.0), (0.3, 2.0))]):
        both = tick(schedule, -300 * (2 - number))
        ran(both, "worker@1", *first)
        ran(both, "worker@2", *second)
    unsure = tick(schedule, -20)
    ran(unsure, "worker@1", 0.1, 4.0, ran=0.5)
    ran(unsure, "worker@3", 3.8, 6.0, ran=0.5)
    ScheduleChange.objects.create(
        schedule=schedule, schedule_name="cleanup", who="ana", reason="measure the baseline",
        before={"strategy": "redis"}, after={"strategy": "none"},
    )  # fmt: skip
    ScheduleChange.objects.update(changed_at=NOON - timedelta(hours=2, minutes=50))


def guarded() -> None:
    """``invoices``: one runs, rivals give way; one runs still."""
    schedule = make_schedule("invoices", alias="database", cron_expression="*/10 * * * *", ttl=30)
    for number in range(12, 0, -1):
        holder = ran(tick(schedule, -600 * number), "worker@1", 0.05, 3.0 + number % 3, token=900 - number)
        held = tick(schedule, -600 * number + 1, outcome="prevented", reason="the name is held by another")
        refused(held, "worker@2", 0.1, "prevented", holder=holder)
    open_tick = tick(schedule, -5, state="started", outcome="", closed_at=None)
    ran(open_tick, "worker@3", 0.1, None, token=910)


def paused() -> None:
    """``report`` was paused by ana."""
    schedule = make_schedule("report", alias="redis", cron_expression="30 2 * * *", time_zone="Europe/Berlin")
    ran(tick(schedule, -37_800), "worker@0", 0.1, 61.0, token=88)
    Schedule.objects.filter(pk=schedule.pk).update(
        paused_at=NOON - timedelta(hours=1), pause_reason="month end", paused_by="ana"
    )


def broken_runs() -> None:
    """``sync-crm``: every unhappy end of a run."""
    schedule = make_schedule("sync-crm", alias="redlock", every_seconds=900)
    for number, state in enumerate(("failed", "lost", "abandoned")):
        over = tick(schedule, -900 * (number + 1), outcome=state)
        ran(
            over, WORKERS[number], 0.2, 9.0, state=state, token=17 + number, reason=f"{state} for a reason", error="x"
        )
    blocked = tick(schedule, -3_600, outcome="blocked", reason="the lock store did not answer")
    refused(blocked, "worker@0", 0.3, "blocked")
    tick(schedule, -4_500, state="misfired", outcome="misfired", reason="nobody began it in time")


def other_states() -> None:
    """One that is switched off, whose name looks like markup, and one whose last fire time has passed."""
    make_schedule(HOSTILE, alias="database", lock_name="hostile", enabled=False, cron_expression="0 3 * * *")
    make_schedule("once-upon-a-time", alias="advisory", once_at=NOON - timedelta(days=40))


def tick(schedule: Schedule, seconds: float, **fields: Any) -> Tick:
    """A tick that is over, ``seconds`` from noon."""
    at = NOON + timedelta(seconds=seconds)
    over = {"state": "closed", "outcome": "executed", "closed_at": at + timedelta(seconds=10)}
    return make_tick(schedule, **{"fire_time": at, "planned_at": at, "dispatched_at": at, **over, **fields})


def ran(of: Tick, worker: str, start: float, end: float | None, **fields: Any) -> Execution:
    """A body that was inside from ``start`` to ``end``, seconds after its fire time; None: it is inside."""
    began = of.fire_time + timedelta(seconds=start)
    known: dict[str, Any] = {
        **_of(of), "lease_id": uuid.uuid4(), "worker": worker, "pid": 61 + WORKERS.index(worker), "began": True,
        "recorded_at": began, "started_at": began, "heartbeat_at": began, "acquire_ms": 4.2,
    }  # fmt: skip
    if end is None:
        return Execution.objects.create(**{**known, "state": "running", **fields})
    over = {"state": "executed", "ended_at": of.fire_time + timedelta(seconds=end), "ran": end - start}
    return Execution.objects.create(**{**known, **over, **fields})


def refused(of: Tick, worker: str, at: float, state: str, **fields: Any) -> Execution:
    """A delivery that was refused, ``at`` seconds after the fire time."""
    when = of.fire_time + timedelta(seconds=at)
    known = {**_of(of), "state": state, "worker": worker, "recorded_at": when, "reason": of.reason}
    return Execution.objects.create(**{**known, **fields})


def _of(of: Tick) -> dict[str, Any]:
    return {
        "tick": of,
        "guarded": of.once_per_tick,
        "lock_name": of.lock_name,
        "lock_alias": of.lock_alias,
        "task_id": f"aegis-{of.pk}-1",
    }
