"""Pausing: an operator stops a schedule for a while, or for good; the pages and the command line both come here.

A pause and a switch do the same to what fires: nothing new is stored, what is open and not begun is refused at its
start and closed as misfired with the reason, and a body that is inside goes on to its end. They differ in what
people mean by them: a pause has a reason and, if wanted, an end; ``enabled`` says whether the schedule is wanted.

Fire times during a pause are not caught up, whatever the misfire policy: somebody did not want them. The boundary
is the instant at which the pause ended: ``resume`` (an edit, so ``activated_at``), or ``until``, even where no beat
was alive then; what came due between ``until`` and the next pass is the policy's business.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import DateTimeField, Value
from django.db.models.functions import Now
from django.db.models.lookups import GreaterThan

from scheduler.changes import Refused, Who, checked, note
from scheduler.models import Schedule
from scheduler.recurrence_rules import InvalidRecurrence, check_year

_PAUSE = ("paused_at", "paused_until", "pause_reason", "paused_by")


def pause(name: str, *, why: str, who: Who, until: datetime | None = None) -> Schedule:
    """Pause a schedule until ``until`` (aware), or until it is resumed; a second pause replaces the first.

    Returns it as stored. Raises ``Refused`` without a reason, for an end that is naive, too far away or has passed
    by the database's clock, and ``Schedule.DoesNotExist``.
    """
    why = checked(why)
    if not why:
        raise Refused("A pause needs a reason: whoever finds it next week will ask for one.")
    if until is not None and until.utcoffset() is None:
        raise Refused(f"The end {until.isoformat()} has no time zone; write {until.isoformat()}Z for UTC.")
    try:
        check_year("until", until)
    except InvalidRecurrence as problem:
        raise Refused(f"The end {problem.message}") from problem
    with transaction.atomic():
        before = _locked(name)
        paused = Schedule.objects.filter(pk=before.pk)
        if until is not None:
            paused = paused.filter(GreaterThan(Value(until, DateTimeField()), Now()))
        by = who.get_username() if hasattr(who, "get_username") else str(who or "")
        if not paused.update(paused_at=Now(), paused_until=until, pause_reason=why, paused_by=by[:150]):
            raise Refused(f"The end {until:%Y-%m-%d %H:%M:%S %Z} has passed; give a later one, or none.")
        return _noted(before, _PAUSE, why, who)


def resume(name: str, *, why: str = "", who: Who) -> Schedule:
    """End a pause now; fire times before this are not caught up. Raises ``Refused`` where there is none."""
    with transaction.atomic():
        before = _locked(name)
        stored = Schedule.objects.filter(pk=before.pk, paused_at__isnull=False)
        if not stored.update(paused_at=None, paused_until=None, pause_reason="", paused_by=""):
            raise Refused("It is not paused, so there is nothing to resume.")
        return _noted(before, _PAUSE, why, who)


def switch(name: str, *, enabled: bool, why: str = "", who: Who) -> Schedule:
    """Enable or disable a schedule. Raises ``Refused`` where it is so already."""
    with transaction.atomic():
        before = _locked(name)
        if not Schedule.objects.filter(pk=before.pk, enabled=not enabled).update(enabled=enabled):
            raise Refused(f"It is {'enabled' if enabled else 'disabled'} already.")
        return _noted(before, ("enabled",), why, who)


def _locked(name: str) -> Schedule:
    """The row, held so that the change row says what was changed. Beats pass it over meanwhile."""
    return Schedule.objects.select_for_update(no_key=True).get(name=name)


def _noted(before: Schedule, fields: tuple[str, ...], why: str, who: Who) -> Schedule:
    after = Schedule.objects.get(pk=before.pk)
    pairs: dict[str, list[Any]] = {name: [getattr(before, name), getattr(after, name)] for name in fields}
    note(after, {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}, why=why, who=who)
    return after
