"""Tick: one fire time of one schedule, stored once however many beats are alive."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now

from scheduler.models.readable import Json
from scheduler.models.stored import Stored
from scheduler.states import OPEN_TICKS, TickOutcome, TickState

_REFUSED = (TickOutcome.PREVENTED, TickOutcome.BLOCKED, TickOutcome.REVOKED)


class Delivery(models.TextChoices):
    """To whom the message of a tick is sent."""

    ONE_WORKER = "one_worker", "One worker (a queue)"
    EVERY_WORKER = "every_worker", "Every worker (broadcast, best effort)"


class Overlap(models.TextChoices):
    """What becomes of a tick that is refused because another body runs under its lock name."""

    SKIP = "skip", "Skip it"
    QUEUE_ONE = "queue_one", "Queue one: let it wait for the end of that run"


class Tick(Stored):
    """The dispatch record (G1) and the memory of a fire time (G2).

    It carries all that a message needs, stamped when it was made: a later edit or deletion of the schedule
    changes nothing about a tick that already exists, and a second publication repeats the first exactly.
    """

    schedule = models.ForeignKey(
        "aegis_scheduler.Schedule", on_delete=models.SET_NULL, null=True, related_name="ticks"
    )
    schedule_name = models.CharField(max_length=200, blank=True)
    revision = models.PositiveIntegerField(default=0)
    fire_time = models.DateTimeField(help_text="The instant that the recurrence names, UTC.")
    manual_key = models.CharField(  # noqa: DJ001 - unique, and most ticks have none
        max_length=200,
        null=True,
        help_text="Set for a run that somebody asked for; makes the request idempotent.",
    )
    call_options = models.JSONField(
        default=dict,
        db_default=Value({}, models.JSONField()),
        help_text="Of a call: its callbacks, chain and chord, which its next attempt repeats.",
    )
    task = models.CharField(max_length=255)
    args = Json(default=list)
    kwargs = Json(default=dict)
    queue = models.CharField(max_length=255, blank=True)
    priority = models.PositiveSmallIntegerField(null=True)
    delivery = models.CharField(max_length=20, choices=Delivery.choices, default=Delivery.ONE_WORKER)
    lock_name = models.CharField(max_length=200)
    lock_alias = models.CharField(max_length=100)
    ttl = models.FloatField(help_text="Seconds.")
    once_per_tick = models.BooleanField(default=True)
    grace = models.FloatField(help_text="Seconds after which a fire time that nobody began is missed.")
    jitter = models.FloatField(
        default=0, db_default=0, help_text="Seconds after the fire time before which it was not published."
    )
    overlap = models.CharField(max_length=12, choices=Overlap.choices, default=Overlap.SKIP, db_default=Overlap.SKIP)
    max_attempts = models.PositiveIntegerField(default=1)

    state = models.CharField(max_length=12, choices=TickState.choices, default=TickState.PLANNED)
    outcome = models.CharField(max_length=12, choices=TickOutcome.choices, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    attempt = models.PositiveIntegerField(default=1)
    retries = models.PositiveIntegerField(default=0, help_text="Celery's count of self.retry() calls.")
    copies = models.PositiveIntegerField(default=0, help_text="Publications of this attempt after the first.")
    planned_at = models.DateTimeField(db_default=Now())
    dispatch_at = models.DateTimeField(help_text="When any beat may publish it again.")
    dispatched_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(
        help_text="Nobody began by then: missed. A waiting tick has none; it gets a new one when it is woken."
    )
    closed_at = models.DateTimeField(null=True)
    through = models.DateTimeField(null=True, help_text="Last fire time of a skipped stretch.")
    missed_count = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "aegis_scheduler_tick"
        ordering = ["-fire_time", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["schedule", "fire_time"],
                condition=Q(manual_key__isnull=True),
                name="aegis_tick_once_per_fire_time",
            ),
            models.UniqueConstraint(fields=["manual_key"], name="aegis_tick_manual_key_once"),
            models.UniqueConstraint(
                fields=["schedule"], condition=Q(state=TickState.WAITING), name="aegis_tick_one_waiting"
            ),
            models.CheckConstraint(condition=Q(state__in=TickState.values), name="aegis_tick_state_known"),
            models.CheckConstraint(condition=Q(overlap__in=Overlap.values), name="aegis_tick_overlap_known"),
            models.CheckConstraint(condition=Q(jitter__gte=0), name="aegis_tick_jitter_not_negative"),
            models.CheckConstraint(
                condition=(
                    Q(state__in=OPEN_TICKS, outcome="")
                    | Q(state=TickState.MISFIRED, outcome=TickOutcome.MISFIRED)
                    | Q(
                        state=TickState.CLOSED,
                        outcome__in=[o for o in TickOutcome.values if o != TickOutcome.MISFIRED],
                    )
                ),
                name="aegis_tick_outcome_iff_over",
            ),
            models.CheckConstraint(
                condition=~Q(outcome__in=[*_REFUSED, TickOutcome.MISFIRED]) | ~Q(reason=""),
                name="aegis_tick_unrun_has_reason",
            ),
            models.CheckConstraint(condition=Q(attempt__gte=1), name="aegis_tick_attempt_from_one"),
            models.CheckConstraint(condition=Q(ttl__gt=0), name="aegis_tick_ttl_positive"),
            models.CheckConstraint(
                condition=Q(through__isnull=True) | Q(through__gte=F("fire_time")),
                name="aegis_tick_through_after_fire_time",
            ),
            models.CheckConstraint(
                condition=Q(missed_count=0) | Q(state=TickState.MISFIRED),
                name="aegis_tick_missed_is_misfired",
            ),
        ]
        indexes = [
            models.Index(
                fields=["dispatch_at"],
                condition=Q(state__in=[TickState.PLANNED, TickState.DISPATCHED]),
                name="aegis_tick_open_dispatch",
            ),
            models.Index(
                fields=["deadline"],
                condition=Q(state__in=[TickState.PLANNED, TickState.DISPATCHED]),
                name="aegis_tick_open_deadline",
            ),
            models.Index(
                fields=["lock_name"],
                condition=Q(state__in=OPEN_TICKS),
                name="aegis_tick_open_name",
            ),
            models.Index(fields=["fire_time"], name="aegis_tick_fire_time"),
            models.Index(fields=["outcome", "fire_time"], name="aegis_tick_of_outcome"),
            models.Index(
                fields=["closed_at"], condition=Q(state=TickState.MISFIRED), name="aegis_tick_missed_closed"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_name or self.task} {self.fire_time:%Y-%m-%d %H:%M:%S}Z"
