"""Storing what a valid form holds: the schedule, its lock name and the change row, together."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from scheduler.changes import Who, note
from scheduler.editing.form import ScheduleForm
from scheduler.models import Schedule


def store(form: ScheduleForm, *, who: Who) -> None:
    """Store the form's schedule; of one that exists, beat's own columns are left alone."""
    schedule = form.instance
    with transaction.atomic():
        changed = changes(form)
        schedule.lock = form.store_lock()
        if schedule.pk is None:
            schedule.save()
        else:
            schedule.save(update_fields=[*ScheduleForm.Meta.fields, "lock"])
        note(schedule, changed, why=form.cleaned_data["reason"], who=who)


def changes(form: ScheduleForm) -> dict[str, list[Any]]:
    """What a valid form would change: name -> [old, new]."""
    schedule, strategy = form.instance, form.cleaned_data["strategy"]
    if schedule.pk is None:
        return {"created": [None, schedule.name], "strategy": [None, strategy]}
    before = Schedule.objects.select_related("lock").get(pk=schedule.pk)
    schedule.lock_id = form.cleaned_data["lock_name"]
    changed = schedule.changed_since(before)
    if before.lock.alias_wanted != strategy:
        changed["strategy"] = [before.lock.alias_wanted, strategy]
    return changed
