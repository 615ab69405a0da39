"""Healing: a broken row whose cause is gone fires again by itself.

A row that cannot be read leaves the due set, or a batch of broken rows at its head would block all others. An edit
of the row, or of its lock name, lets it be read again at once (triggers). What no edit tells of, a LOCKS setting
that was mended or a time zone that a new tzdata knows, is found by looking: at a beat's start and once a minute, by
an index that holds broken rows only. Looking stores nothing, so a row that is still broken stays marked, makes no
noise and costs a pass nothing.
"""

from __future__ import annotations

import logging

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from scheduler.changes import Refused, Who, note
from scheduler.conf import conf
from scheduler.loading import loaded
from scheduler.minting import UNREADABLE, plan, reason_of
from scheduler.models import Schedule
from scheduler.notes import is_far_away
from scheduler.switching import aliases_in_force

logger = logging.getLogger("aegis.ticker")


def heal(*names: str) -> dict[str, str]:
    """Look at broken schedules, those named or a batch; returns name -> what is wrong still, empty where healed.

    The fire times that passed meanwhile are the misfire policy's business, as after an outage: nothing was edited.
    Rows that another transaction holds are left out.
    """
    with transaction.atomic():
        broken = Schedule.objects.exclude(broken_reason="").order_by("id")
        if names:
            broken = broken.filter(name__in=names)
        held = broken.select_for_update(no_key=True, skip_locked=True).values_list("pk", "name")
        ids = dict(held[: conf("BATCH")])
        rows, problems = loaded(Schedule.objects.select_related("lock"), ids)
        aliases = aliases_in_force({row.lock_id for row in rows.values()})
        found = {row.name: _problem(row, aliases[row.lock_id]) for row in rows.values() if row.lock_id in aliases}
        found |= {ids[pk]: reason_of(problem) for pk, problem in problems.items()}
        healed = [name for name, problem in found.items() if not problem]
        Schedule.objects.filter(name__in=healed).update(broken_reason="")
    for name in healed:
        logger.info("schedule %s can be read again", name, extra={"action": "healed", "schedule": name})
    return found


def _problem(schedule: Schedule, alias: str) -> str:
    try:
        plan(schedule, alias, timezone.now())
    except UNREADABLE as problem:
        return reason_of(problem)
    return ""


def repair(name: str, *, who: Who) -> str:
    """Look at one schedule now: clear a mark whose cause is gone, and name a next run anew that is too far away.

    Returns what was done, in a sentence. Raises ``Refused`` where it is still broken, or nothing is wrong with it.
    Naming anew counts from now, so nothing is filled in.
    """
    with transaction.atomic():
        row = Schedule.objects.select_for_update(no_key=True).get(name=name)
        if row.broken_reason:
            problem = heal(name).get(name, "its lock name is in use by another transaction; try again")
            if problem:
                raise Refused(f"It is still broken: {problem}")
            note(row, {"broken": [row.broken_reason, ""]}, why="repair", who=who)
            return f"{name} can be read again."
        if is_far_away(row, timezone.now()):
            again = {"activated_at": Now(), "next_fire_at": None, "exhausted": False}
            Schedule.objects.filter(pk=row.pk).update(**again)
            note(row, {"next_fire_at": [row.next_fire_at, None]}, why="repair", who=who)
            return f"{name}: the next run is named anew, from now."
    raise Refused("Nothing is wrong with it.")
