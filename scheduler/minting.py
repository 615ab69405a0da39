"""Mint: from due schedules to stored ticks, in one transaction.

A fire time is named once, by the transaction that stored it: the schedule's row is locked, its ticks are inserted
under a unique constraint, and ``next_fire_at`` moves on, all or nothing. Two beats never hold one schedule at
once (SKIP LOCKED), and a beat that dies in between leaves everything as it was.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from django.db import IntegrityError, connection, transaction

from locks import InvalidLockBackend, lock_backends
from locks.clock import boottime
from scheduler.conf import conf
from scheduler.jitter import delay
from scheduler.loading import UNLOADABLE
from scheduler.misfire import Decision, decide
from scheduler.models import Schedule, Tick
from scheduler.models.schedule import Misfire
from scheduler.statements import dispatch
from scheduler.states import TickOutcome, TickState
from scheduler.switching import aliases_in_force

logger = logging.getLogger("aegis.ticker")

MOMENT = timedelta(microseconds=1)
# Ticks stored for one schedule in one pass; what is beyond becomes one misfired row.
MAX_TICKS = 1000
# Seconds after which a pass stores what it has and leaves the rest to the next one: it holds the lock names of all
# that is due, and whoever calls a task under one of them waits for that.
PASS_BUDGET = 0.5
# The largest number that a row keeps: each second of a clock that was set forward by a century is more.
MOST_MISSED = 2**31 - 1
# What a row that cannot be read raises, whichever of its columns is at fault.
UNREADABLE = (*UNLOADABLE, TypeError, ArithmeticError, InvalidLockBackend, IntegrityError)


@dataclass(frozen=True, slots=True)
class Minted:
    """What one pass stored: ticks to publish now, and whether it left some that are due to the next one."""

    ticks: tuple[Tick, ...]
    full: bool


def mint(now: datetime | None = None) -> Minted:
    """Store the ticks that are due by the database's clock (``now`` is for tests only) and advance the schedules.

    Where a row spoils the transaction of all, because it cannot be loaded or what it makes cannot be stored, each
    that is due gets a transaction of its own, and the one at fault is marked.
    """
    try:
        return _mint(now)
    except UNREADABLE as problem:
        logger.warning("a schedule spoils this pass, so each is taken by itself: %s", type(problem).__name__)
    ticks: list[Tick] = []
    for schedule_id, _ in _due_ids():
        try:
            ticks += _mint(now, schedule_id).ticks
        except UNREADABLE as problem:
            _mark_broken(schedule_id, problem)
    return Minted(tuple(ticks), full=False)


def _mint(now: datetime | None, only: int | None = None) -> Minted:
    """As ``mint``, in one transaction; ``only``: the id of one schedule."""
    with transaction.atomic():
        schedules, read_at = _due(only)
        now = now or read_at
        if not schedules:
            return Minted((), full=False)
        over = boottime() + PASS_BUDGET
        aliases = aliases_in_force({schedule.lock_id for schedule in schedules})
        ticks: list[NewTick] = []
        left = len(schedules)
        for schedule in schedules:
            ticks += _take(schedule, aliases[schedule.lock_id], now)
            left -= 1
            if boottime() >= over:
                break
        stored = _store(ticks, now)
    return Minted(stored, full=left > 0 or len(schedules) >= conf("BATCH"))


def _due_ids(only: int | None = None) -> list[tuple[int, datetime]]:
    """The ids of the schedules that are due, locked as their lock names are, each with the database's clock when they
    were read."""
    given = {"batch": conf("BATCH"), "on_time": conf("ON_TIME"), "id": only}
    with connection.cursor() as cursor:
        cursor.execute(dispatch.DUE if only is None else dispatch.DUE_ONE, given)
        return cursor.fetchall()


def _mark_broken(schedule_id: int, problem: BaseException) -> None:
    """Mark a row of which nothing can be loaded."""
    reason = reason_of(problem)
    with connection.cursor() as cursor:
        cursor.execute(dispatch.MARK_BROKEN, {"id": schedule_id, "reason": reason})
        for (name,) in cursor.fetchall():
            logger.error("schedule %s cannot be read and is left out: %s", name, reason)


def _due(only: int | None) -> tuple[list[Schedule], datetime]:
    """The schedules that are due, locked, and the database's clock when they were read."""
    rows = _due_ids(only)
    read = Schedule.objects.select_related("lock")
    found = read.in_bulk([row[0] for row in rows])
    return [found[row[0]] for row in rows], rows[0][1] if rows else datetime.max.replace(tzinfo=UTC)


def _take(schedule: Schedule, alias: str, now: datetime) -> list[NewTick]:
    """The ticks of one due row, which moves on; a row that cannot be read is marked, shown and skipped, and harms
    no other."""
    try:
        next_fire_at, ticks = plan(schedule, alias, now)
    except UNREADABLE as problem:
        logger.exception("schedule %s cannot be read and is left out", schedule.name)
        Schedule.objects.filter(pk=schedule.pk).update(broken_reason=reason_of(problem))
        return []
    _advance(schedule, next_fire_at)
    return ticks


def plan(schedule: Schedule, alias: str, now: datetime) -> tuple[datetime | None, list[NewTick]]:
    """The next fire time and the ticks until ``now``; stores nothing. Raises one of ``UNREADABLE``."""
    decision = _decide(schedule, now)
    return decision.next_fire_at, _ticks(schedule, decision, alias, now)


def reason_of(problem: BaseException) -> str:
    """What is kept in ``broken_reason``: one line. The next one of a database's error shows the row's values."""
    return f"{type(problem).__name__}: {problem}".partition("\n")[0][:500]


def _decide(schedule: Schedule, now: datetime) -> Decision:
    """The policy's answer for one row: what has just come due fires, and of what is older at most one, or all.

    "Skip" still starts the latest fire time that is within its grace: a start may be late by that much. Without
    the bound on what is on time, a restart of the only beat would let a whole grace full of ticks loose at once.
    Where all are to fire, the oldest one is the only one of this pass: the next one waits for its end (``DUE``). More
    than one is asked for only where the oldest is on time, and those are few: counting what is missed takes long.
    """
    lock_backends[schedule.lock.alias_wanted]  # raises where LOCKS does not define it
    schedule.check_arguments()
    schedule.check_jitter()
    grace = schedule.misfire_grace
    window = grace if schedule.misfire == Misfire.SKIP else max(grace, schedule.catch_up_window)
    ask = partial(
        decide,
        schedule.recurrence(),
        after=_boundary(schedule),
        now=now,
        policy=Misfire.FIRE_ALL if schedule.misfire == Misfire.FIRE_ALL else Misfire.FIRE_ONCE,
        grace=min(grace, conf("ON_TIME")),
        catch_up_window=window,
        named=schedule.next_fire_at,
    )
    decision = ask(limit=1)
    if any(fires.late for fires in decision.ticks) or not (decision.next_fire_at and decision.next_fire_at <= now):
        return decision
    return ask(limit=MAX_TICKS)


def _boundary(schedule: Schedule) -> datetime:
    """Fire times after this are this pass's business: nothing before an edit is filled in, nor what passed during
    a pause. A pause with an end ends by itself, and that instant is the first after it: a beat that comes by later
    applies the misfire policy to what came since."""
    bounds = [schedule.activated_at] if schedule.activated_at else []
    if schedule.next_fire_at:
        bounds.append(schedule.next_fire_at - MOMENT)
    if schedule.paused_until:
        bounds.append(schedule.paused_until - MOMENT)
    return max(bounds)


@dataclass(frozen=True, slots=True)
class NewTick:
    """A tick to be stored, and the instant from which it may be published."""

    tick: Tick
    publish_from: datetime


def _ticks(schedule: Schedule, decision: Decision, alias: str, now: datetime) -> list[NewTick]:
    """Ticks that fire, and those that say what does not.

    The deadline counts from the fire time, plus jitter, or from now where a fire time is caught up. A tick whose
    jitter is not over waits as ``planned`` until a pass finds its ``dispatch_at`` in the past; jitter spreads what
    is caught up as well, or a beat that comes back would start everything at one instant.
    """
    ticks = []
    for fires in decision.ticks:
        tick = _stamped(schedule, alias, fires.fire_time)
        jitter = delay(schedule.pk, fires.fire_time, schedule.jitter_seconds)
        publish_from = (now if fires.late else fires.fire_time) + jitter
        tick.jitter = jitter.total_seconds()
        tick.deadline = max(publish_from, now) + timedelta(seconds=schedule.misfire_grace)
        tick.dispatch_at = max(publish_from, now)
        if publish_from <= now:  # this pass publishes it, so other beats leave it alone for a while
            tick.dispatch_at += timedelta(seconds=conf("REDISPATCH_GRACE"))
        ticks.append(NewTick(tick, publish_from))
    for stretch in decision.skipped:
        tick = _stamped(schedule, alias, stretch.first)
        tick.deadline = tick.dispatch_at = tick.closed_at = now
        tick.state, tick.outcome = TickState.MISFIRED, TickOutcome.MISFIRED
        tick.reason = f"no beat stored it in time; misfire policy: {schedule.get_misfire_display().lower()}"
        tick.through, tick.missed_count = stretch.through, min(stretch.count, MOST_MISSED)
        ticks.append(NewTick(tick, now))
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
        overlap=schedule.overlap,
        max_attempts=schedule.max_attempts,
    )


def _store(planned: list[NewTick], now: datetime) -> tuple[Tick, ...]:
    """Insert what is not stored yet; returns what is to be published now.

    The schedules are locked, so nobody else inserts under them now; a fire time may be there already where the
    database's clock was set back. The unique constraint stands behind this.
    """
    named = set(
        Tick.objects.filter(
            schedule_id__in={p.tick.schedule_id for p in planned},
            fire_time__in={p.tick.fire_time for p in planned},
            manual_key=None,
        ).values_list("schedule_id", "fire_time")
    )
    fresh = [p for p in planned if (p.tick.schedule_id, p.tick.fire_time) not in named]
    Tick.objects.bulk_create(p.tick for p in fresh)
    return tuple(p.tick for p in fresh if p.tick.state == TickState.PLANNED and p.publish_from <= now)


def _advance(schedule: Schedule, next_fire_at: datetime | None) -> None:
    """Only beat's own columns are written: an edit made meanwhile is never overwritten."""
    Schedule.objects.filter(pk=schedule.pk).update(next_fire_at=next_fire_at, exhausted=next_fire_at is None)
