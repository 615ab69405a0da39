"""Running again what a fire time came to nothing for: 02:00 failed, or was missed, and at 09:00 somebody mends it.

The run is a manual tick with that fire time: its body reads the same ``scheduled_for``, and ``once_key`` gives it the
same keys, so that another system recognises what the first try had done already.

What ran to its end, or may still, is not run again; nor is what nobody knows any more because its tick may have been
deleted after KEEP_DAYS. Two people who ask at once::

    A: locks the schedule's row, finds nothing open, stores its tick     B: waits for the row
    A: commits                                                           B: finds A's tick open, is refused
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q
from django.db.models.functions import Now

from scheduler.changes import Refused
from scheduler.models import Execution, Schedule, Tick
from scheduler.once_key import AGAIN
from scheduler.pruning import kept_days
from scheduler.recurrence_rules import InvalidRecurrence, in_utc
from scheduler.states import OPEN_TICKS, ExecutionState, TickOutcome


def key_of(schedule: Schedule, fire_time: datetime, key: str) -> str:
    """The key of the manual tick; the same ``key`` asks for the same run. Raises ``Refused``."""
    try:
        at = in_utc("fire time", fire_time)
    except InvalidRecurrence as problem:
        raise Refused(f"The fire time {problem.message}") from problem
    assert at is not None
    return f"{AGAIN}{schedule.pk}:{at.isoformat()}:{key}"


def refuse(schedule: Schedule, fire_time: datetime) -> None:
    """Raises ``Refused`` for a fire time that is to come, that a beat has yet to pass, that ran or still may.

    Call it in a transaction: it holds the schedule's row to its end, so that no beat passes meanwhile.
    """
    held = Schedule.objects.select_for_update(of=("self",), no_key=True).annotate(now=Now()).get(pk=schedule.pk)
    if held.now < fire_time:
        raise Refused(f"{fire_time:%Y-%m-%d %H:%M:%S %Z} has not come yet; name a fire time that is past.")
    if _is_yet_to_be_passed(held, held.now, fire_time):
        remedy = f"it is broken: {held.broken_reason} Repair it" if held.broken_reason else "start one"
        raise Refused(f"No beat has passed that fire time yet: {remedy}, and it runs or is told to be missed.")
    # Also those of a schedule that was deleted and made again: its name is the same, and so are the keys.
    its_own = Q(schedule=schedule) | Q(schedule=None, schedule_name=held.name)
    ticks = list(Tick.objects.filter(its_own, fire_time=fire_time).order_by("-id"))
    _check_known(held.now, fire_time, ticks)
    for tick in ticks:
        if what := _came_to(tick):
            raise Refused(f"Tick {tick.pk} of that fire time {what}, so it is not run again.")
        if tick.schedule_name != held.name:
            raise Refused(
                f"It was {tick.schedule_name!r} at that fire time, and the keys of once_key are made of the name, so "
                "what had been done already would be done twice. Give it that name again, then run it."
            )


def _is_yet_to_be_passed(schedule: Schedule, now: datetime, fire_time: datetime) -> bool:
    """Not in a pause: beats pass nothing then, and nothing from before its end is ever caught up. After an edit that
    no beat has seen, all is that came since.
    """
    if not schedule.enabled or schedule.exhausted or schedule.is_paused(now):
        return False
    if schedule.next_fire_at is not None:
        return schedule.next_fire_at <= fire_time
    edited, resumed = schedule.activated_at, schedule.paused_until
    return (edited is None or edited < fire_time) and (resumed is None or resumed <= fire_time)


def _check_known(now: datetime, fire_time: datetime, ticks: list[Tick]) -> None:
    """A tick is proof of how its fire time ended only if it ended within the days that are kept: the newest of a
    schedule is never deleted, and what was run again after it is.
    """
    days = kept_days()
    if days is None or fire_time >= (since := now - timedelta(days=days)):
        return
    if not any(tick.manual_key is None and (tick.closed_at is None or tick.closed_at >= since) for tick in ticks):
        raise Refused(
            f"It is not known whether that fire time ran: what is older than {days} days is deleted "
            "(AEGIS['KEEP_DAYS']). Run it without a fire time."
        )


def _came_to(tick: Tick) -> str:
    """Why a tick stands against another run; empty: it does not."""
    if tick.state in OPEN_TICKS:
        return f"is {tick.state}"
    if tick.outcome == TickOutcome.EXECUTED:
        return "was executed"
    # Without the tick guard a copy may be inside, or have come to its end, under a tick that another one closed.
    # One that was given up may have come back and said how it ended.
    came = Q(state__in=(ExecutionState.RUNNING, ExecutionState.EXECUTED)) | Q(returned_as=ExecutionState.EXECUTED)
    body = Execution.objects.filter(came, tick=tick).order_by("-id").first()
    if body is None:
        return ""
    return "has a running body" if body.state == ExecutionState.RUNNING else "was executed"
