"""A test of every channel: the same way as an alert, without one."""

from __future__ import annotations

from django.utils import timezone

from scheduler.alerts.channels import Told, tell
from scheduler.models import Alert, AlertDelivery


def send_test() -> list[Told]:
    """Tell each channel that is set up; what came of it is stored, without an alert."""
    now = timezone.now()
    trial = Alert(
        rule="test", subject="test", message="This is a test. Nothing is wrong.", first_seen=now, last_seen=now
    )
    told = tell(trial, set())
    AlertDelivery.objects.bulk_create(
        AlertDelivery(channel=one.channel, ok=one.ok, detail=f"test: {one.detail}"[:300]) for one in told
    )
    return told
