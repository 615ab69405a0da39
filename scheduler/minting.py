"""Mint: from due schedules to stored ticks, in one transaction.

A fire time is named once, by the transaction that stored it: the schedule's row is locked, its ticks are inserted
under a unique constraint, and ``next_fire_at`` moves on, all or nothing. Two beats never hold one schedule at
once (SKIP LOCKED), and a beat that dies in between leaves everything as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from locks import InvalidLockBackend, lock_backends
from scheduler.conf import conf
from scheduler.misfire import Decision, decide
from scheduler.models import LockName, Schedule, Tick
from scheduler.models.schedule import Misfire
from scheduler.statements import dispatch
from scheduler.states import TickOutcome, TickState

logger = logging.getLogger("aegis.ticker")

MOMENT = timedelta(microseconds=1)
# Ticks stored for one schedule in one pass; what is beyond becomes one misfired row.
MAX_TICKS = 1000


@dataclass(frozen=True, slots=True)
class Minted:
    """What one pass stored: ticks to publish, and whether the batch was full."""

    ticks: tuple[Tick, ...]
    full: bool


def mint(now: datetime | None = None) -> Minted:
    """Store the ticks that are due by the database's clock (``now`` is for tests only) and advance the schedules."""
    with transaction.atomic():
        schedules, read_at = _due()
        now = now or read_at
        if not schedules:
            return Minted((), full=False)
        aliases = _aliases_in_force({schedule.lock_id for schedule in schedules})
        ticks: list[Tick] = []
        ours = [schedule for schedule in schedules if schedule.lock_id in aliases]
        for schedule in ours:
            ticks += _take(schedule, aliases[schedule.lock_id], now)
        stored = _store(ticks)
    return Minted(stored, full=bool(ours) and len(schedules) >= conf("BATCH"))


def _due() -> tuple[list[Schedule], datetime]:
    """The schedules that are due, locked, and the database's clock when they were read."""
    with connection.cursor() as cursor:
        cursor.execute(dispatch.DUE, {"batch": conf("BATCH")})
        rows = cursor.fetchall()
    found = Schedule.objects.select_related("lock").in_bulk([row[0] for row in rows])
    return [found[row[0]] for row in rows], rows[0][1] if rows else datetime.max.replace(tzinfo=UTC)


def _aliases_in_force(names: Iterable[str]) -> dict[str, str]:
    """Lock the names, in order, and put wanted strategies in force where nothing is open.

    The lock is what makes "nothing is open" true: another beat that stores a tick under the name holds it until
    its commit, and the statement that looks for open ticks begins after the lock was given, so that it sees what
    was stored. A name that somebody else holds is left out, and its schedules stay due: waiting for it would let
    one forgotten transaction stop every schedule.
    """
    rows = (
        LockName.objects.filter(name__in=list(names))
        .select_for_update(no_key=True, skip_locked=True)
        .order_by("name")
    )
    aliases = {}
    for row in rows:
        aliases[row.name] = row.alias_in_force
        if row.alias_in_force != row.alias_wanted:
            with connection.cursor() as cursor:
                cursor.execute(dispatch.SWITCH_ALIAS, {"name": row.name})
                switched = cursor.fetchone()
            aliases[row.name] = switched[0] if switched else row.alias_in_force or row.alias_wanted
    return aliases


def _take(schedule: Schedule, alias: str, now: datetime) -> list[Tick]:
    """The ticks of one due row, which moves on; a row that cannot be read is marked, shown and skipped, and harms
    no other."""
    try:
        decision = _decide(schedule, now)
        ticks = _ticks(schedule, decision, alias, now)
    except (ValueError, TypeError, ArithmeticError, InvalidLockBackend) as problem:
        logger.exception("schedule %s cannot be read and is left out", schedule.name)
        Schedule.objects.filter(pk=schedule.pk).update(broken_reason=f"{type(problem).__name__}: {problem}"[:500])
        return []
    _advance(schedule, decision.next_fire_at)
    return ticks


def _decide(schedule: Schedule, now: datetime) -> Decision:
    """The policy's answer for one row: what has just come due fires, and of what is older at most one, or all.

    "Skip" still starts the latest fire time that is within its grace: a start may be late by that much. Without
    the bound on what is on time, a restart of the only beat would let a whole grace full of ticks loose at once.
    """
    lock_backends[schedule.lock.alias_wanted]  # raises where LOCKS does not define it
    grace = schedule.misfire_grace
    window = grace if schedule.misfire == Misfire.SKIP else max(grace, schedule.catch_up_window)
    return decide(
        schedule.recurrence(),
        after=_boundary(schedule),
        now=now,
        policy=Misfire.FIRE_ALL if schedule.misfire == Misfire.FIRE_ALL else Misfire.FIRE_ONCE,
        grace=min(grace, conf("ON_TIME")),
        catch_up_window=window,
        limit=MAX_TICKS,
    )


def _boundary(schedule: Schedule) -> datetime:
    """Fire times after this are this pass's business: nothing before an edit or a pause is filled in."""
    bounds = [schedule.activated_at] if schedule.activated_at else []
    if schedule.next_fire_at:
        bounds.append(schedule.next_fire_at - MOMENT)
    if schedule.paused_until:
        bounds.append(schedule.paused_until)
    return max(bounds)


def _ticks(schedule: Schedule, decision: Decision, alias: str, now: datetime) -> list[Tick]:
    ticks = []
    for planned in decision.ticks:
        tick = _stamped(schedule, alias, planned.fire_time)
        tick.deadline = max(planned.fire_time, now) + timedelta(seconds=schedule.misfire_grace)
        tick.dispatch_at = now + timedelta(seconds=conf("REDISPATCH_GRACE"))
        ticks.append(tick)
    for stretch in decision.skipped:
        tick = _stamped(schedule, alias, stretch.first)
        tick.deadline = tick.dispatch_at = tick.closed_at = now
        tick.state, tick.outcome = TickState.MISFIRED, TickOutcome.MISFIRED
        tick.reason = f"no beat stored it in time; misfire policy: {schedule.get_misfire_display().lower()}"
        tick.through, tick.missed_count = stretch.through, stretch.count
        ticks.append(tick)
    return ticks


def _stamped(schedule: Schedule, alias: str, fire_time: datetime) -> Tick:
    backend = lock_backends[alias]  # also where the schedule names a ttl: no worker could run it
    return Tick(
        schedule=schedule,
        schedule_name=schedule.name,
        revision=schedule.revision,
        fire_time=fire_time,
        task=schedule.task,
        args=schedule.args,
        kwargs=schedule.kwargs,
        queue=schedule.queue,
        priority=schedule.priority,
        delivery=schedule.delivery,
        lock_name=schedule.lock_id,
        lock_alias=alias,
        ttl=schedule.ttl or backend.ttl,
        once_per_tick=schedule.once_per_tick,
        grace=schedule.misfire_grace,
        max_attempts=schedule.max_attempts,
    )


def _store(ticks: list[Tick]) -> tuple[Tick, ...]:
    """Insert what is not stored yet; returns what is to be published.

    The schedules are locked, so nobody else inserts under them now; a fire time may be there already where the
    database's clock was set back. The unique constraint stands behind this.
    """
    named = set(
        Tick.objects.filter(
            schedule_id__in={tick.schedule_id for tick in ticks},
            fire_time__in={tick.fire_time for tick in ticks},
            manual_key=None,
        ).values_list("schedule_id", "fire_time")
    )
    fresh = Tick.objects.bulk_create(t for t in ticks if (t.schedule_id, t.fire_time) not in named)
    return tuple(tick for tick in fresh if tick.state == TickState.PLANNED)


def _advance(schedule: Schedule, next_fire_at: datetime | None) -> None:
    """Only beat's own columns are written: an edit made meanwhile is never overwritten."""
    Schedule.objects.filter(pk=schedule.pk).update(next_fire_at=next_fire_at, exhausted=next_fire_at is None)
