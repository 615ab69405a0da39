"""Running by hand: a person asks for a run now, and is told what became of it.

The run goes through the same tick, lock and audit as one that a recurrence names: while another holds the lock name
it is refused, or waits, as the schedule says. There is no way here to run without the lock. A paused or disabled
schedule is run all the same: somebody asked for this very run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from locks import InvalidLockBackend
from scheduler import again, limits, manual
from scheduler.changes import Refused, Who, note
from scheduler.conf import conf
from scheduler.models import Execution, Schedule, ScheduleChange, Tick
from scheduler.models.tick import Overlap
from scheduler.states import OPEN_TICKS, ExecutionState, TickOutcome, TickState

BY_HAND = "run by hand"
SENT_WITHIN = 2.0  # seconds beyond a pass that beats have to send it, before it is said that they cannot


def ask(
    name: str, *, key: str, who: Who, why: str = "", if_held: str = "", fire_time: datetime | None = None
) -> Tick:
    """A manual tick of schedule ``name``; any beat publishes it within a second.

    The same ``key`` gives the same tick however often it is asked for, so a form that is sent twice runs once; keys
    of two schedules have nothing to do with each other. ``if_held``: ``skip`` or ``queue_one`` instead of what the
    schedule says. ``fire_time``: a past one that is run again (``scheduler.again``).

    Raises ``Refused`` (``TooOften``), ``LedgerUnavailable`` and ``Schedule.DoesNotExist``.
    """
    if not key or len(key) > 150 or not key.isprintable():
        raise Refused("The key must be 1 to 150 printable characters.")
    if if_held not in ("", *Overlap.values):
        raise Refused(f"There is no {if_held!r} to do while the name is held; give {' or '.join(Overlap.values)}.")
    schedule = Schedule.objects.select_related("lock").get(name=name)
    key = again.key_of(schedule, fire_time, key) if fire_time else f"run:{schedule.pk}:{key}"
    with transaction.atomic():
        # Counting holds the user's row, so that a second click looks for the first one's tick after it was stored.
        done = ScheduleChange.objects.filter(changed_by_id=getattr(who, "pk", None), after__has_key=BY_HAND)
        limits.hold(who)
        found = Tick.objects.filter(manual_key=key).first()
        if found is not None:
            return found
        limits.admit(who, "run_now", done, "changed_at")
        if fire_time is not None:
            again.refuse(schedule, fire_time)
        # Noted first: the tick is stored by a session of its own, and stays whatever becomes of this transaction.
        noted = note(schedule, {BY_HAND: [None, ""]}, why=why[:500], who=who)
        tick = _requested(schedule, key, if_held, fire_time)
        noted.after = {BY_HAND: f"tick {tick}"}
        noted.save(update_fields=["after"])
    return Tick.objects.get(pk=tick)


def _requested(schedule: Schedule, key: str, if_held: str, fire_time: datetime | None) -> int:
    try:
        return manual.request_run(schedule, key=key, overlap=if_held or None, fire_time=fire_time)
    except InvalidLockBackend as problem:
        alias = schedule.lock.alias_in_force or schedule.lock.alias_wanted
        raise Refused(
            f"Strategy {alias!r} guards it and cannot be used: {problem} Or change its strategy, and apply that now."
        ) from problem
    except ValueError as problem:
        raise Refused(str(problem)) from problem


def inside(names: Collection[str]) -> dict[str, list[Execution]]:
    """The executions that run under these lock names, the newest first; one query."""
    rows: QuerySet[Execution] = Execution.objects.filter(state=ExecutionState.RUNNING, lock_name__in=names)
    found: dict[str, list[Execution]] = {}
    for row in rows.select_related("tick").order_by("-started_at")[:200]:
        found.setdefault(row.lock_name, []).append(row)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run that was asked for stands. ``over``: nothing more will become of it."""

    word: str
    tone: str
    said: str
    over: bool
    execution: Execution | None = None
    holder: Execution | None = None


_ENDED = {
    TickOutcome.EXECUTED: ("Ran once", "ok", "It ran to its end."),
    TickOutcome.FAILED: ("Failed", "warn", "The task raised."),
    TickOutcome.LOST: ("Lost lease", "warn", "Its lease ended before the body did."),
    TickOutcome.ABANDONED: ("Crashed", "warn", "Its process fell silent."),
    TickOutcome.BLOCKED: (
        "Blocked",
        "warn",
        "The lock store did not answer, or a guard was open, so it was not run.",
    ),
    TickOutcome.REVOKED: ("Revoked", "mute", "Its message was revoked."),
    TickOutcome.MISFIRED: ("Missed", "warn", "No worker began it in time."),
}


def standing(tick: Tick) -> Standing:
    """Read anew: the tick and its latest execution."""
    latest = tick.executions.select_related("holder", "holder__tick").order_by("-id").first()
    holder = latest.holder if latest else None
    if tick.state == TickState.STARTED:
        return Standing(word="Started", tone="ok", said="It is running.", over=False, execution=latest)
    if tick.state in OPEN_TICKS:
        return _open(tick, latest, holder)
    if tick.outcome == TickOutcome.PREVENTED:
        return Standing(word="Held", tone="calm", said=_held(holder, tick.reason), over=True, holder=holder)
    word, tone, said = _ENDED[TickOutcome(tick.outcome)]
    said = f"{said} {tick.reason}" if tick.reason else said
    ran = latest if latest is not None and latest.started_at else None
    return Standing(word=word, tone=tone, said=said, over=True, execution=ran)


def _open(tick: Tick, latest: Execution | None, holder: Execution | None) -> Standing:
    if tick.state == TickState.WAITING:
        said = f"{_held(holder, 'Another run is inside.')} This one follows when that run ends."
        return Standing(word="Waiting", tone="calm", said=said, over=False, holder=holder)
    until = f"It is tried again until {tick.deadline:%H:%M:%S} UTC."
    if latest is not None and latest.state == ExecutionState.PREVENTED:
        return Standing(
            word="Held", tone="calm", said=f"{_held(holder, latest.reason)} {until}", over=False, holder=holder
        )
    if latest is not None and latest.state == ExecutionState.BLOCKED:
        return Standing(
            word="Blocked",
            tone="warn",
            said=f"The lock store did not answer, or a guard was open. {until}",
            over=False,
        )
    if tick.state == TickState.PLANNED:
        return _unsent(tick, until)
    return Standing(word="Sent", tone="mute", said=f"No worker has begun it yet. {until}", over=False)


def _unsent(tick: Tick, until: str) -> Standing:
    """Told by the database's clock. Only a first attempt is ever unsent: what is tried again was sent before."""
    late = Now() - timedelta(seconds=conf("PASS_INTERVAL") + SENT_WITHIN)
    if not Tick.objects.filter(pk=tick.pk, planned_at__lt=late).exists():
        return Standing(word="Asked for", tone="mute", said="A beat sends it within a second.", over=False)
    said = (
        "No beat has been able to send it yet. Look whether a beat runs and what its log says, and whether the "
        f"broker answers; manage.py aegis doctor looks at both. {until}"
    )
    return Standing(word="Asked for", tone="warn", said=said, over=False)


def _held(holder: Execution | None, otherwise: str) -> str:
    if holder is None:
        return otherwise
    return f"Held by {holder.worker or 'an unnamed worker'} (token {'-' if holder.token is None else holder.token})."
