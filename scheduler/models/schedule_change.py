"""ScheduleChange: who changed what, and why."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scheduler.models.stored import Stored


class ScheduleChange(Stored):
    """One edit of one schedule. Kept when the schedule or the user is deleted."""

    schedule = models.ForeignKey(
        "aegis_scheduler.Schedule", on_delete=models.SET_NULL, null=True, related_name="changes"
    )
    schedule_name = models.CharField(max_length=200)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    who = models.CharField(
        max_length=150,
        blank=True,
        db_default="",
        help_text="The user's name, or who gave the command.",
    )
    changed_at = models.DateTimeField(auto_now_add=True)
    before = models.JSONField(default=dict, help_text="The changed fields as they were.")
    after = models.JSONField(default=dict, help_text="The changed fields as they became.")
    reason = models.CharField(max_length=500, blank=True)

    class Meta:
        db_table = "aegis_scheduler_schedulechange"
        ordering = ["-changed_at"]
        verbose_name = "schedule change"

    def __str__(self) -> str:
        return f"{self.schedule_name} at {self.changed_at:%Y-%m-%d %H:%M:%S}"
