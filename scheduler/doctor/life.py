"""Does it live: a beat that passes, workers that read the queues, ticks that are taken, bodies that are heard of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from locks import Finding, InvalidLockBackend, LockUnavailable, lock_backends
from locks.connection import execute
from locks.findings import fail, ok, warn
from scheduler.conf import NO_BROADCAST, conf
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.fleet import Fleet
from scheduler.doctor.report import named

TOPIC = "life"
PATIENCE = 2.5  # seconds for one answer of the database
LATE = 60.0  # seconds past its grace, or of silence, after which a beat should have settled it

# Out: open ticks that nobody began, and of the one that has waited longest since it could be published: name, age,
# seconds past its deadline (negative: before it).
_BACKLOG = """
SELECT count(*) OVER (), schedule_name, task, extract(epoch FROM clock_timestamp() - since)::float8,
       extract(epoch FROM clock_timestamp() - deadline)::float8
FROM (SELECT schedule_name, task, deadline,
             greatest(planned_at, fire_time + make_interval(secs => jitter)) AS since
      FROM aegis_scheduler_tick WHERE state IN ('planned', 'dispatched')) open
WHERE since < clock_timestamp() ORDER BY since LIMIT 1
"""
# In: grace (seconds). Out: running executions without a heartbeat for longer.
_SILENT = """
SELECT e.id, e.lock_name, e.lock_alias, e.lease_id, e.worker, e.pid,
       extract(epoch FROM clock_timestamp() - e.heartbeat_at)::float8
FROM aegis_scheduler_execution e
WHERE e.state = 'running' AND e.heartbeat_at < clock_timestamp() - make_interval(secs => %(grace)s::float8)
ORDER BY e.heartbeat_at LIMIT 20
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Ticks that wait for a worker. Ages are seconds by the database's clock."""

    open_ticks: int = 0
    oldest: str = ""
    age: float = 0.0
    overdue: float = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A running execution that is not heard of. ``held``: whether the store shows its lease; ``None``: no answer."""

    execution: int
    lock_name: str
    worker: str
    pid: int | None
    age: float
    held: bool | None


def ask() -> tuple[Backlog, list[Silent]]:
    """Raises what the database raises."""
    rows = execute(_BACKLOG, timeout=PATIENCE)
    backlog = Backlog()
    if rows:
        ((count, schedule, task, age, overdue),) = rows
        backlog = Backlog(open_ticks=count, oldest=schedule or task, age=age, overdue=overdue)
    silent = execute(_SILENT, {"grace": float(conf("SILENCE_GRACE"))}, timeout=PATIENCE)
    return backlog, [_looked_up(*row) for row in silent]


def _looked_up(
    execution: int, name: str, alias: str, lease_id: Any, worker: str, pid: int | None, age: float
) -> Silent:
    held: bool | None
    try:
        backend = lock_backends[alias]
        info = backend.inspect(name) if backend.exclusive else None
        held = info is not None and info.lease_id in (None, lease_id)
    except (LockUnavailable, InvalidLockBackend):
        held = None
    return Silent(execution=execution, lock_name=name, worker=worker, pid=pid, age=age, held=held)


def judge(
    fleet: Fleet, scheduled: Sequence[Scheduled], backlog: Backlog, silent: Sequence[Silent]
) -> Iterator[Finding]:
    yield _beats(fleet)
    yield _workers(fleet, scheduled)
    yield _backlog(backlog)
    yield from _silence(silent)
    gone = [one for one in fleet.silent if one.age < 24 * 3600]
    if gone:
        yield warn(
            TOPIC, f"{named(one.who for one in gone)} fell silent without saying good-bye, the last "
            f"{min(one.age for one in gone):.0f} s ago",
            "Look at why they ended: killed, out of memory, or frozen.",
        )  # fmt: skip


def _beats(fleet: Fleet) -> Finding:
    if not fleet.beats:
        before = [one for one in fleet.silent if one.kind == "beat"]
        last = f"; the last pass was {min(one.age for one in before):.0f} s ago" if before else ""
        return fail(
            TOPIC,
            f"no beat is alive{last}: nothing fires",
            "Start one: celery -A PROJECT beat, without -S or --scheduler, or with -S aegis.",
        )
    return ok(TOPIC, f"{len(fleet.beats)} beat(s), the last pass {min(one.age for one in fleet.beats):.1f} s ago")


def _workers(fleet: Fleet, scheduled: Sequence[Scheduled]) -> Finding:
    """Whether each queue that a schedule sends to is read by a live worker."""
    if not fleet.workers:
        return fail(TOPIC, "no worker is alive: ticks are stored and nobody runs them", "Start a worker.")
    broadcast = str(conf("BROADCAST_QUEUE"))
    unheard = [row.name for row in scheduled if row.broadcast]
    if unheard and conf("BROADCAST_QUEUE") is None:
        return fail(TOPIC, f"{named(unheard)} are delivered to every worker, and none listens", NO_BROADCAST)
    wanted = {broadcast if row.broadcast else row.queue for row in scheduled}
    read = {queue for worker in fleet.workers for queue in worker.queues or ()}
    unread = sorted(wanted - read)
    if unread and any(worker.queues is None for worker in fleet.workers):
        return warn(
            TOPIC, f"could not look: {named(w.name for w in fleet.workers if w.queues is None)} do not tell their "
            f"queues; nobody else reads {named(unread)}",
            "Restart them with this version of Aegis.",
        )  # fmt: skip
    if unread:
        to = [row.name for row in scheduled if (broadcast if row.broadcast else row.queue) in unread]
        return fail(
            TOPIC, f"no live worker reads {named(unread)}, to which {named(to)} are sent",
            f"Start a worker with -Q {unread[0]}, or correct the queue.",
        )  # fmt: skip
    return ok(TOPIC, f"{len(fleet.workers)} worker(s) read all {len(wanted)} queues that schedules use")


def _backlog(backlog: Backlog) -> Finding:
    if not backlog.open_ticks:
        return ok(TOPIC, "no tick waits for a worker")
    said = f"{backlog.open_ticks} ticks wait, the oldest ({backlog.oldest}) for {backlog.age:.0f} s"
    if backlog.overdue > LATE:
        return fail(TOPIC, f"{said}, {backlog.overdue:.0f} s past its grace: no beat settles it", "Start a beat.")
    if backlog.age > float(conf("REDISPATCH_GRACE")):
        return warn(
            TOPIC,
            f"{said}: its message was not taken in time",
            "Start more workers, or look at who holds its lock name.",
        )
    return ok(TOPIC, said)


def _silence(silent: Sequence[Silent]) -> Iterator[Finding]:
    cases: tuple[tuple[str, Callable[[Silent], bool], str], ...] = (
        (
            "silent, still holds the lease",
            lambda one: one.held is True,
            "Look at the process: kill it if it is stuck, then force release its lease in the admin.",
        ),
        (
            "silent, and the store does not say whether it holds its lease",
            lambda one: one.held is None,
            "Bring the store back, or `aegis schedules retarget NAME --strategy ALIAS --now`: the reaper decides.",
        ),
        (
            "silent without a lease, and no beat has given it up",
            lambda one: one.held is False and one.age > LATE,
            "Start a beat: its reaper closes the row.",
        ),
    )
    for said, applies, step in cases:
        concerned = [one for one in silent if applies(one)]
        if concerned:
            who = named(
                f"execution {one.execution} of {one.lock_name} ({one.worker}, pid {one.pid}, {one.age:.0f} s)"
                for one in concerned
            )
            yield warn(TOPIC, f"{said}: {who}", step)
