"""Execution: one worker's try at a tick; the audit row."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler.models.stored import Stored
from scheduler.states import ENDED, REFUSED, ExecutionState

_STARTED = (ExecutionState.RUNNING, *ENDED)


class Execution(Stored):
    """One try. Its stamps are the database's; ``ran`` is the body's own duration on the worker's clock.

    A terminal state never changes: every UPDATE that ends a row asks for ``state = 'running'`` and checks the
    row count. A body that is heard of after it was abandoned is recorded beside the state (``returned_at``).
    """

    tick = models.ForeignKey("aegis_scheduler.Tick", on_delete=models.CASCADE, related_name="executions")
    attempt = models.PositiveIntegerField(default=1)
    guarded = models.BooleanField(help_text="Whether the tick guard was on.")
    lock_name = models.CharField(max_length=200)
    lock_alias = models.CharField(max_length=100)
    state = models.CharField(max_length=12, choices=ExecutionState.choices)
    reason = models.CharField(max_length=500, blank=True, help_text="Why it was refused, lost or abandoned.")
    error = models.TextField(blank=True, help_text="What the body raised.")
    holder = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        help_text="The execution that was inside.",
    )
    lease_id = models.UUIDField(null=True, help_text="The acquisition; unique, so that a lost reply is recognised.")
    token = models.BigIntegerField(null=True, help_text="Fencing token, raised by start.")
    worker = models.CharField(max_length=255, blank=True)
    pid = models.PositiveIntegerField(null=True)
    task_id = models.CharField(max_length=255, blank=True)
    acquire_ms = models.FloatField(null=True, help_text="How long acquiring took, milliseconds.")
    recorded_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ran = models.FloatField(null=True, help_text="Seconds inside the body.")
    began = models.BooleanField(default=False, help_text="Whether the body may have been entered.")
    returned_at = models.DateTimeField(null=True, help_text="Heard of after it was abandoned.")
    returned_as = models.CharField(max_length=12, blank=True)

    class Meta:
        db_table = "aegis_scheduler_execution"
        ordering = ["-id"]
        permissions = [("export_execution", "Can export executions")]
        constraints = [
            models.UniqueConstraint(fields=["lease_id"], name="aegis_execution_lease_once"),
            models.UniqueConstraint(
                fields=["tick", "attempt"],
                condition=Q(guarded=True, began=True),
                name="aegis_execution_body_once_per_attempt",
            ),
            models.CheckConstraint(condition=Q(state__in=ExecutionState.values), name="aegis_execution_state_known"),
            models.CheckConstraint(
                condition=(
                    Q(state__in=REFUSED, began=False, started_at__isnull=True, token__isnull=True)
                    | Q(state__in=_STARTED, started_at__isnull=False, lease_id__isnull=False)
                ),
                name="aegis_execution_started_or_refused",
            ),
            models.CheckConstraint(
                condition=Q(state__in=ENDED, ended_at__isnull=False)
                | Q(state__in=[*REFUSED, ExecutionState.RUNNING], ended_at__isnull=True),
                name="aegis_execution_ended_iff_over",
            ),
            models.CheckConstraint(
                condition=Q(returned_at__isnull=True) | Q(state=ExecutionState.ABANDONED),
                name="aegis_execution_only_abandoned_returns",
            ),
            models.CheckConstraint(
                condition=~Q(state=ExecutionState.RUNNING) | Q(began=True),
                name="aegis_execution_running_began",
            ),
        ]
        indexes = [
            models.Index(
                fields=["lock_name"],
                condition=Q(state=ExecutionState.RUNNING),
                name="aegis_execution_running",
            ),
            models.Index(fields=["recorded_at"], name="aegis_execution_recorded"),
            # Who was inside with whom, who came next under a name, and the newest runs of a name.
            models.Index(fields=["lock_name", "started_at"], condition=Q(began=True), name="aegis_execution_of_name"),
            models.Index(fields=["lock_alias", "recorded_at"], name="aegis_execution_of_alias"),
            models.Index(fields=["state", "recorded_at"], name="aegis_execution_of_state"),
        ]

    def __str__(self) -> str:
        return f"execution {self.pk} of tick {self.tick_id}: {self.state}"
