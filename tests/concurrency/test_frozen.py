"""Workers that freeze in the middle of a body, are overtaken, and wake up.

A real prefork worker runs bodies that write all the time; its children are stopped (SIGSTOP) wherever they
happen to be, past the end of their leases; another execution starts under each name; then they go on (SIGCONT).
Stale is what a frozen body adds after its successor has looked for the first time.

FROZEN_RUNS is the number of runs of each kind (default 8).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import psutil
import pytest

from aegis_site.demo.models import Effect
from locks import lock_backends
from scheduler.context import RunContext
from scheduler.models import Execution, Schedule
from scheduler.publisher import publish
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.doors import open_door
from tests.support.engine import make_schedule, make_tick
from tests.support.loss import EXCLUSIVE, start_later

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

RUNS = int(os.environ.get("FROZEN_RUNS", "8"))
BATCH = 8  # bodies that freeze together, one in each child of the worker
TTL = 1.5  # seconds

# A lease that is a session stays as long as its process lives, frozen or not: nobody overtakes it.
OVERTAKEN = [alias for alias in EXCLUSIVE if not getattr(lock_backends[alias], "session_bound", False)]
TIMED = [alias for alias in EXCLUSIVE if lock_backends[alias].trust_window]


@dataclass
class Frozen:
    """One body that was overtaken while it stood still."""

    schedule: Schedule
    execution: Execution
    process: psutil.Process
    seen: list[int] = field(default_factory=list)  # its effects, as its successor saw them

    def effects(self) -> int:
        return Effect.objects.filter(schedule=self.schedule.name, subject=f"token {self.execution.token}").count()

    def overtake(self) -> None:
        def look(context: RunContext) -> None:
            self.seen.append(self.effects())

        start_later(self.schedule, look)

    @property
    def stale(self) -> int:
        return self.effects() - self.seen[0]

    @property
    def over(self) -> bool:
        self.execution.refresh_from_db()
        return self.execution.state != ExecutionState.RUNNING


def freeze(task: str, names: list[tuple[str, str]]) -> list[Frozen]:
    """Run the task under each (name, alias), and stop each body once it has written.

    On a busy machine a body may lose its lease, or its process its life, before anybody stops it: it is left out.
    """
    schedules = {
        name: make_schedule(name, alias=alias, ttl=TTL, task=f"tests.support.loss_tasks.{task}")
        for name, alias in names
    }
    ticks = [make_tick(schedule, seconds_ago=5) for schedule in schedules.values()]
    assert len(publish(ticks).ids) == len(names)
    frozen: dict[int, Frozen] = {}
    gone: set[int] = set()

    def stop(execution: Execution) -> None:
        assert execution.pid is not None
        try:
            one = Frozen(schedules[execution.tick.schedule_name], execution, psutil.Process(execution.pid))
            if one.effects():
                one.process.send_signal(signal.SIGSTOP)
                frozen[execution.id] = one
        except psutil.NoSuchProcess:
            gone.add(execution.id)

    def all_met() -> bool:
        begun = Execution.objects.filter(tick__in=ticks, began=True, pid__isnull=False).select_related("tick")
        for execution in begun.filter(state=ExecutionState.RUNNING).exclude(id__in=[*frozen, *gone]):
            stop(execution)
        ended = begun.exclude(state=ExecutionState.RUNNING).exclude(id__in=[*frozen, *gone])
        return len(frozen) + len(gone) + ended.count() >= len(names)

    wait_until(all_met, timeout=60, message="each body was inside and had written")
    return list(frozen.values())


def thaw(frozen: list[Frozen]) -> None:
    for one in frozen:
        one.process.send_signal(signal.SIGCONT)


def overtaken_runs(celery_processes: CeleryProcesses, task: str, aliases: list[str], runs: int) -> list[Frozen]:
    """As many runs as asked for, in batches; returned when the frozen ones are awake and out, or gone."""
    celery_processes.worker("-I", "tests.support.loss_tasks", concurrency=BATCH)
    done: list[Frozen] = []
    numbers = iter(range(4 * runs))  # so that a machine on which no body ever gets that far ends the test
    while len(done) < runs:
        batch = [next(numbers) for _ in range(min(BATCH, runs - len(done)))]
        done += overtaken(task, [(f"frozen-{n}", aliases[n % len(aliases)]) for n in batch])
    return done


def overtaken(task: str, names: list[tuple[str, str]]) -> list[Frozen]:
    """One batch."""
    stopped = freeze(task, names)
    thaw([one for one in stopped if one.over])  # its end was on the way when it was stopped
    frozen = [one for one in stopped if not one.over]
    for one in frozen:
        one.overtake()
    if task == "scribble_until_killed":
        wait_until(
            lambda: not any(one.process.is_running() for one in frozen), timeout=60, message="all are gone, unwoken"
        )
    else:
        thaw(frozen)
        if task == "scribble_carelessly":
            wait_until(lambda: all(one.stale for one in frozen), timeout=60, message="all have written more")
            for one in frozen:
                open_door(one.schedule.name)
        wait_until(lambda: all(one.over for one in frozen), timeout=60, message="all are out of their bodies")
    return frozen


def test_a_frozen_body_writes_nothing_through_its_guard(celery_processes: CeleryProcesses) -> None:
    runs = overtaken_runs(celery_processes, "scribble_guarded", OVERTAKEN, RUNS)
    assert len(runs) == RUNS
    assert [one.stale for one in runs] == [0] * RUNS
    assert {one.execution.state for one in runs} == {ExecutionState.LOST}
    assert all(one.seen[0] > 0 for one in runs)


def test_a_frozen_process_is_gone_before_anybody_else_starts(celery_processes: CeleryProcesses) -> None:
    """It writes outside of any guard; the kernel has ended it while it stood still."""
    runs = overtaken_runs(celery_processes, "scribble_until_killed", TIMED, RUNS)
    assert [one.stale for one in runs] == [0] * RUNS
    assert all(one.seen[0] > 0 for one in runs)


def test_without_guard_and_kill_stale_writes_are_seen(celery_processes: CeleryProcesses) -> None:
    """Else the two tests above would prove nothing."""
    runs = overtaken_runs(celery_processes, "scribble_carelessly", OVERTAKEN, min(RUNS, BATCH))
    assert all(one.stale > 0 for one in runs)
    assert {one.execution.state for one in runs} == {ExecutionState.LOST}  # and never executed
