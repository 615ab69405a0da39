"""A test of every channel: the same way as an alert, without one."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models.functions import Now
from django.utils import timezone

from scheduler.alerts.channels import Told, tell
from scheduler.limits import admit
from scheduler.models import Alert, AlertDelivery

_SAID = "sent a test to every channel"


def send_test(who: Any = None) -> list[Told]:
    """Tell each channel that is set up; what came of it is stored, without an alert.

    ``who``: the user who asks on a page; a command line is neither limited nor logged. Raises ``TooOften``.
    """
    if who is not None:
        _record(who)
    now = timezone.now()
    trial = Alert(
        rule="test", subject="test", message="This is a test. Nothing is wrong.", first_seen=now, last_seen=now
    )
    told = tell(trial, set())
    AlertDelivery.objects.bulk_create(
        AlertDelivery(channel=one.channel, ok=one.ok, detail=f"test: {one.detail}"[:300]) for one in told
    )
    return told


def _record(who: Any) -> None:
    """Before anybody is told: a test that fails counts as well."""
    row = {"content_type": ContentType.objects.get_for_model(Alert), "object_id": None, "change_message": _SAID}
    with transaction.atomic():
        admit(who, "send_test", LogEntry.objects.using(DEFAULT_DB_ALIAS).filter(user_id=who.pk, **row), "action_time")
        LogEntry.objects.create(user_id=who.pk, object_repr="test", action_flag=CHANGE, action_time=Now(), **row)
