"""Alert: a condition that needs a human, from its beginning to its end; its rules' settings and what was sent."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler.models.stored import Stored

# Of those that are not closed: open, muted, acknowledged; of each, the newest first.
OPEN_FIRST = ("-state", "-last_seen", "-id")


class AlertRule(Stored):
    """One rule as somebody set it. A rule without a row holds with its default (``scheduler.alerts.rules``)."""

    key = models.CharField(max_length=30, primary_key=True)
    enabled = models.BooleanField(default=True)
    threshold = models.FloatField(null=True, blank=True, help_text="Empty: the default.")
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "aegis_scheduler_alertrule"
        ordering = ["key"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.key


class AlertLook(Stored):
    """The one row that says when the rules were looked at: whoever moves it forward looks, and nobody else then."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    looked_at = models.DateTimeField(db_default=Now())
    looked_by = models.CharField(max_length=255, blank=True)
    trouble = models.TextField(blank=True, help_text="Rules that could not be looked at the last time, and why.")

    class Meta:
        db_table = "aegis_scheduler_alertlook"
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=Q(id=1), name="aegis_alertlook_one_row")]

    def __str__(self) -> str:
        return f"looked at {self.looked_at:%Y-%m-%d %H:%M:%S}"


class Alert(Stored):
    """One condition, from when it was first seen until it is gone. At most one of a (rule, subject) is not closed.

    ``count`` is how many events it stands for; of a condition without events, at how many looks it held. Each change
    of state is one guarded statement.
    """

    class State(models.TextChoices):
        OPEN = "open", "Open"
        ACKNOWLEDGED = "acknowledged", "Acknowledged"
        MUTED = "muted", "Muted"
        CLOSED = "closed", "Closed"

    rule = models.CharField(max_length=30)
    subject = models.CharField(max_length=300, help_text="What it is about: a schedule, a process, a lock name.")
    state = models.CharField(max_length=12, choices=State.choices, default=State.OPEN)
    message = models.CharField(max_length=500)
    schedule = models.ForeignKey("aegis_scheduler.Schedule", on_delete=models.SET_NULL, null=True, related_name="+")
    execution_id = models.BigIntegerField(null=True, help_text="The execution that shows it, if one does.")
    mark = models.BigIntegerField(default=0, help_text="The newest event that is counted.")
    count = models.PositiveIntegerField(default=1)
    first_seen = models.DateTimeField(db_default=Now())
    last_seen = models.DateTimeField(db_default=Now())
    notified_at = models.DateTimeField(null=True, help_text="When somebody took it to tell the channels.")
    handled_by = models.CharField(max_length=150, blank=True, help_text="Who acknowledged or muted it.")
    handled_at = models.DateTimeField(null=True)
    note = models.CharField(max_length=500, blank=True)
    muted_until = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "aegis_scheduler_alert"
        ordering = ["-last_seen", "-id"]
        default_permissions = ("view", "change")
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=~Q(state="closed"), name="aegis_alert_one_not_closed"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["open", "acknowledged", "muted", "closed"]), name="aegis_alert_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state="muted", muted_until__isnull=False) | ~Q(state="muted"),
                name="aegis_alert_muted_has_end",
            ),
            models.CheckConstraint(
                condition=Q(state="closed", closed_at__isnull=False)
                | (~Q(state="closed") & Q(closed_at__isnull=True)),
                name="aegis_alert_closed_iff_over",
            ),
        ]
        indexes = [models.Index(fields=["state", "-last_seen"], name="aegis_alert_by_state")]

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}"


class AlertDelivery(Stored):
    """One attempt to tell one channel, with what came of it. Never an address or a secret."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, null=True, related_name="deliveries")
    channel = models.CharField(max_length=20)
    sent_at = models.DateTimeField(db_default=Now())
    ok = models.BooleanField()
    detail = models.CharField(max_length=300, blank=True)

    class Meta:
        db_table = "aegis_scheduler_alertdelivery"
        ordering = ["-sent_at", "-id"]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.channel}: {'told' if self.ok else 'not told'}"
