"""A schedule is deleted once nobody else has it in hand."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import pre_delete

from scheduler.models import Schedule


def connect() -> None:
    pre_delete.connect(_hold, sender=Schedule, dispatch_uid="aegis.hold_before_deletion")


def _hold(instance: Schedule, using: str, **kwargs: Any) -> None:
    """Django takes the schedule from its ticks first and deletes it then. A tick that a beat stores in between would
    make the deletion fail.
    """
    list(Schedule.objects.using(using).select_for_update().filter(pk=instance.pk).values_list("pk"))
