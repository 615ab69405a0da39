"""LockRelease: a lease that somebody ended, or tried to end, from outside of its holder."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler.models.stored import Stored


class LockRelease(Stored):
    """One attempt at a release by force; who, when, why, what, and what came of it.

    Stored before the store is asked, as ``unknown``, and settled by one guarded UPDATE afterwards: whatever dies in
    between, the attempt is on record, and nothing claims an outcome that nobody saw.
    """

    class Result(models.TextChoices):
        UNKNOWN = "unknown", "Not known"
        RELEASED = "released", "Released"
        MOVED = "moved", "Not released: another lease holds the name"
        FREE = "free", "Not released: the name was free"

    name = models.CharField("lock name", max_length=200)
    alias = models.CharField("strategy", max_length=100)
    lease_id = models.UUIDField("lease", help_text="The lease that the operator saw.")
    token = models.BigIntegerField(null=True, help_text="Its number, where the store numbers its grants.")
    holder = models.CharField(max_length=300, blank=True, help_text="Who held it, for people.")
    reason = models.CharField(max_length=500)
    released_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True)
    who = models.CharField(max_length=150, help_text="The user's name, or who gave the command.")
    asked_at = models.DateTimeField(db_default=Now())
    result = models.CharField(max_length=10, choices=Result.choices, default=Result.UNKNOWN)
    detail = models.CharField(max_length=500, blank=True, help_text="Who holds the name now, or why it is not known.")

    class Meta:
        db_table = "aegis_scheduler_lockrelease"
        ordering = ["-asked_at", "-id"]
        verbose_name = "lock release"
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="aegis_lockrelease_has_reason"),
            models.CheckConstraint(condition=~Q(who=""), name="aegis_lockrelease_has_who"),
            models.CheckConstraint(
                condition=Q(result__in=["unknown", "released", "moved", "free"]),
                name="aegis_lockrelease_result_known",
            ),
        ]
        indexes = [models.Index(fields=["released_by", "asked_at"], name="aegis_lockrelease_by_whom")]

    def __str__(self) -> str:
        return f"{self.name} ({self.alias}) at {self.asked_at:%Y-%m-%d %H:%M:%S}"
