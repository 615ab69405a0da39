"""Running again what a fire time came to nothing for: 02:00 failed, or was missed, and at 09:00 somebody mends it.

The run is a manual tick with that fire time: its body reads the same ``scheduled_for``, and ``once_key`` gives it the
same keys, so that another system recognises what the first try had done already.

What ran to its end, or may still, is not run again. Two people who ask at once::

    A: locks the schedule's row, finds nothing open, stores its tick     B: waits for the row
    A: commits                                                           B: finds A's tick open, is refused
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models.functions import Now

from scheduler.changes import Refused
from scheduler.models import Schedule, Tick
from scheduler.once_key import AGAIN
from scheduler.states import OPEN_TICKS, TickOutcome


def key_of(schedule: Schedule, fire_time: datetime, key: str) -> str:
    """The key of the manual tick; the same ``key`` asks for the same run."""
    return f"{AGAIN}{schedule.pk}:{fire_time.astimezone(UTC).isoformat()}:{key}"


def refuse(schedule: Schedule, fire_time: datetime) -> None:
    """Raises ``Refused`` for a fire time that is to come, that a beat has yet to pass, that ran or still may.

    Call it in a transaction: it holds the schedule's row to its end, so that no beat passes meanwhile.
    """
    held = Schedule.objects.select_for_update(of=("self",), no_key=True).annotate(now=Now()).get(pk=schedule.pk)
    if held.now < fire_time:
        raise Refused(f"{fire_time:%Y-%m-%d %H:%M:%S %Z} has not come yet; name a fire time that is past.")
    if held.enabled and held.next_fire_at is not None and held.next_fire_at <= fire_time:
        raise Refused("No beat has passed that fire time yet: start one, which runs it or says that it was missed.")
    for tick in Tick.objects.filter(schedule=schedule, fire_time=fire_time).order_by("-id"):
        if tick.state in OPEN_TICKS or tick.outcome == TickOutcome.EXECUTED:
            what = f"is {tick.state}" if tick.state in OPEN_TICKS else "was executed"
            raise Refused(f"Tick {tick.pk} of that fire time {what}, so it is not run again.")
