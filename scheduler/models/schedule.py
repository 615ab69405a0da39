"""Schedule: what runs, when, and how it is guarded."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q

from locks.base import MAX_TTL
from scheduler import recurrence as recurrences
from scheduler.conf import NO_BROADCAST, conf
from scheduler.models.readable import Json, in_calendar
from scheduler.models.stored import Stored
from scheduler.models.tick import Delivery, Overlap
from scheduler.recurrence_rules import LONGEST_EVERY

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Misfire(models.TextChoices):
    """What happens to fire times that passed while nobody could store them."""

    SKIP = "skip", "Skip those older than the grace"
    FIRE_ONCE = "fire_once", "Fire the latest one"
    FIRE_ALL = "fire_all", "Fire all of them"


def _at_least(least: float, what: str) -> MinValueValidator:
    return MinValueValidator(least, f"{what} must be %(limit_value)s or more; you gave %(show_value)s.")


# Also what Unicode calls a line or a paragraph: a name stands in one line of a table, a log and a message.
CONTROL = r"[\x01-\x1f\x7f-\x9f\u2028\u2029]"
_ONE_LINE = RegexValidator(
    CONTROL,
    "A name is one line of text: take out line breaks, tabs and other control characters.",
    inverse_match=True,
)
_PRIORITY = MaxValueValidator(9, "Priority must be 0 to 9; you gave %(show_value)s.")
_MOMENT = 0.001
_LONGEST = {
    "ttl": MAX_TTL, "misfire_grace": LONGEST_EVERY, "catch_up_window": LONGEST_EVERY, "jitter_seconds": LONGEST_EVERY,
}  # fmt: skip

_INSTANTS = (
    "anchor", "once_at", "start_at", "end_at", "paused_at", "paused_until", "activated_at", "next_fire_at",
)  # fmt: skip


def first_of_1970() -> datetime:
    """The anchor of intervals, UTC: any beat on any host names the same fire times."""
    return EPOCH


def _exactly_one_recurrence() -> Q:
    cron = ~Q(cron_expression="")
    no_cron = Q(cron_expression="")
    return (
        (cron & Q(every_seconds__isnull=True, once_at__isnull=True))
        | (no_cron & Q(every_seconds__isnull=False, once_at__isnull=True))
        | (no_cron & Q(every_seconds__isnull=True, once_at__isnull=False))
    )


class Schedule(Stored):
    """One row of the catalog.

    A BEFORE trigger follows every edit, however it was made (form, ORM, ``update()``, SQL): where recurrence,
    zone, window, ``enabled`` or the pause changed, ``revision`` grows, ``activated_at`` becomes the database's
    clock and ``next_fire_at`` is cleared, so that the next pass of any beat computes it anew and nothing before
    the edit is ever back-filled. Beats write ``next_fire_at``, ``exhausted`` and ``broken_reason`` only; forms
    never write them.
    """

    name = models.CharField(max_length=200, unique=True, validators=[_ONE_LINE])
    notes = models.TextField(blank=True)
    task = models.CharField(max_length=255, help_text="One of the tasks declared with @exclusive_task.")
    args = Json(default=list, blank=True, help_text='A JSON list, for example ["north"].')
    kwargs = Json(default=dict, blank=True, help_text='A JSON object, for example {"region": "north"}.')
    queue = models.CharField(max_length=255, blank=True, help_text="Empty: the queue of the task.")
    priority = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[_PRIORITY], help_text="0 to 9. Empty: the task's, else Celery's default."
    )

    cron_expression = models.CharField(
        "cron", max_length=200, blank=True, help_text="crontab(5): minute hour day month weekday."
    )
    time_zone = models.CharField(max_length=100, default="UTC", help_text="The zone in which cron is read.")
    every_seconds = models.PositiveIntegerField(
        "every (seconds)", null=True, blank=True, validators=[_at_least(1, "An interval in seconds")]
    )
    anchor = models.DateTimeField(
        default=first_of_1970, help_text="Intervals fire at anchor + k x every, whichever beat is alive."
    )
    once_at = models.DateTimeField("once at", null=True, blank=True)
    start_at = models.DateTimeField(null=True, blank=True, help_text="No fire time before this.")
    end_at = models.DateTimeField(null=True, blank=True, help_text="No fire time after this.")

    lock = models.ForeignKey("aegis_scheduler.LockName", on_delete=models.PROTECT, related_name="schedules")
    ttl = models.FloatField(
        "TTL (seconds)", null=True, blank=True, help_text="Life of the lease. Empty: the strategy's own."
    )
    once_per_tick = models.BooleanField(
        "tick guard",
        default=True,
        help_text="The body of one tick starts at most once. A lock alone does not give this.",
    )
    delivery = models.CharField(max_length=20, choices=Delivery.choices, default=Delivery.ONE_WORKER)
    overlap = models.CharField(
        "if the name is busy",
        max_length=12,
        choices=Overlap.choices,
        default=Overlap.SKIP,
        db_default=Overlap.SKIP,
        help_text="Queue one: at most one tick of this schedule waits, as long as the other run lasts; the grace "
        "counts from the end of that run. While one waits, later ones are prevented (queue full).",
    )
    misfire = models.CharField(max_length=12, choices=Misfire.choices, default=Misfire.FIRE_ONCE)
    misfire_grace = models.FloatField(
        "grace (seconds)",
        default=60,
        validators=[_at_least(_MOMENT, "The grace in seconds")],
        help_text="A fire time that nobody began within this is missed.",
    )
    catch_up_window = models.FloatField(
        "catch-up window (seconds)",
        default=3600,
        validators=[_at_least(0, "The window in seconds")],
        help_text="Older missed fire times are never caught up.",
    )
    jitter_seconds = models.FloatField(
        "jitter (seconds)",
        default=0,
        db_default=0,
        validators=[_at_least(0, "The jitter in seconds")],
        help_text="Each tick is published up to this much after its fire time, the same for one fire time on every "
        "beat. Smaller than the shortest time between two runs; 0: at once.",
    )
    max_attempts = models.PositiveIntegerField(
        default=1,
        validators=[_at_least(1, "The number of attempts")],
        help_text="Starts of one tick after a crash or a lost lease. 1: at most once; more: at least once.",
    )

    enabled = models.BooleanField(default=True)
    paused_at = models.DateTimeField(null=True, blank=True, editable=False)
    paused_until = models.DateTimeField(null=True, blank=True, editable=False)
    pause_reason = models.CharField(max_length=500, blank=True, editable=False)
    paused_by = models.CharField(max_length=150, blank=True, db_default="", editable=False)

    revision = models.PositiveIntegerField(default=1, editable=False)
    activated_at = models.DateTimeField(null=True, editable=False)
    next_fire_at = models.DateTimeField(null=True, editable=False)
    exhausted = models.BooleanField(default=False, editable=False, help_text="No further fire time exists.")
    broken_reason = models.CharField(max_length=500, blank=True, editable=False)

    class Meta:
        db_table = "aegis_scheduler_schedule"
        ordering = ["name"]
        permissions = [
            ("pause_schedule", "Can pause and resume schedule"),
            ("run_schedule", "Can run schedule now"),
            ("change_strategy", "Can change the strategy of schedules"),
            ("view_arguments", "Can view the arguments of tasks and what bodies raised"),
        ]
        constraints = [
            models.CheckConstraint(condition=_exactly_one_recurrence(), name="aegis_schedule_one_recurrence"),
            models.CheckConstraint(
                condition=Q(every_seconds__isnull=True) | Q(every_seconds__gte=1),
                name="aegis_schedule_every_from_one",
            ),
            models.CheckConstraint(
                condition=Q(start_at__isnull=True) | Q(end_at__isnull=True) | Q(end_at__gt=F("start_at")),
                name="aegis_schedule_window_ordered",
            ),
            models.CheckConstraint(condition=Q(ttl__isnull=True) | Q(ttl__gt=0), name="aegis_schedule_ttl_positive"),
            models.CheckConstraint(condition=Q(misfire_grace__gt=0), name="aegis_schedule_grace_positive"),
            models.CheckConstraint(condition=Q(catch_up_window__gte=0), name="aegis_schedule_window_not_negative"),
            models.CheckConstraint(condition=Q(max_attempts__gte=1), name="aegis_schedule_attempts_from_one"),
            models.CheckConstraint(
                condition=Q(priority__isnull=True) | Q(priority__lte=9), name="aegis_schedule_priority_range"
            ),
            models.CheckConstraint(condition=Q(misfire__in=Misfire.values), name="aegis_schedule_misfire_known"),
            models.CheckConstraint(condition=Q(delivery__in=Delivery.values), name="aegis_schedule_delivery_known"),
            models.CheckConstraint(condition=Q(overlap__in=Overlap.values), name="aegis_schedule_overlap_known"),
            models.CheckConstraint(condition=Q(jitter_seconds__gte=0), name="aegis_schedule_jitter_not_negative"),
            models.CheckConstraint(
                condition=Q(every_seconds__isnull=True) | Q(jitter_seconds__lt=F("every_seconds")),
                name="aegis_schedule_jitter_below_interval",
                violation_error_code="jitter",
            ),
            models.CheckConstraint(condition=~Q(name__regex=CONTROL), name="aegis_schedule_name_is_one_line"),
            models.CheckConstraint(
                condition=Q(paused_until__isnull=True) | Q(paused_at__isnull=False),
                name="aegis_schedule_until_needs_pause",
            ),
            models.CheckConstraint(condition=in_calendar(*_INSTANTS), name="aegis_schedule_instants_in_calendar"),
        ]
        indexes = [
            models.Index(fields=["id"], condition=~Q(broken_reason=""), name="aegis_schedule_broken"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Also refuses a span so long that no beat could reckon with it, and a delivery that nobody would hear of."""
        super().clean_fields(exclude)
        told = {
            name: f"At most {most:.0f} seconds are kept here; you gave {getattr(self, name):g}."
            for name, most in _LONGEST.items()
            if name not in (exclude or ()) and not (getattr(self, name) or 0) <= most
        }
        unheard = self.delivery == Delivery.EVERY_WORKER and conf("BROADCAST_QUEUE") is None
        if unheard and "delivery" not in (exclude or ()):
            told["delivery"] = NO_BROADCAST
        if told:
            raise ValidationError(told)

    def recurrence(self) -> recurrences.Recurrence:
        """The recurrence that this row names. Raises ``InvalidRecurrence`` with the field at fault."""
        window = {"start_at": self.start_at, "end_at": self.end_at}
        if self.cron_expression:
            return recurrences.cron(self.cron_expression, self.time_zone, **window)
        if self.every_seconds is not None:
            return recurrences.every(self.every_seconds, self.anchor, zone=self.time_zone, **window)
        if self.once_at is None:
            raise recurrences.InvalidRecurrence(
                "expression", "Give exactly one of cron, every and once at; none is given."
            )
        return recurrences.once(self.once_at, zone=self.time_zone, **window)

    def check_jitter(self) -> None:
        """Raises ``ValueError`` where two neighbouring ticks could change places."""
        if not self.jitter_seconds:
            return
        period = recurrences.smallest_period(self.recurrence())
        if period is not None and not self.jitter_seconds < period:
            raise ValueError(
                f"The jitter is {self.jitter_seconds:g} s and two runs are only {period:g} s apart at times; "
                "give less than that."
            )

    def check_arguments(self) -> None:
        """Raises ``ValueError`` where no message could carry them. They may be secret, so it does not show them."""
        for field, kind, wanted in (("args", list, "list"), ("kwargs", dict, "object")):
            if not isinstance(getattr(self, field), kind):
                raise ValueError(
                    f"{field} must be a JSON {wanted} that Python can read, without a number of thousands of digits "
                    "or a nesting of thousands of levels; write it anew."
                )

    def is_paused(self, at: datetime) -> bool:
        """Whether a pause is in force at the aware instant ``at``."""
        return self.paused_at is not None and (self.paused_until is None or self.paused_until > at)

    def state_word(self, at: datetime) -> str:
        """Active, Paused, Disabled, Broken or Finished, as the pages say it."""
        if self.broken_reason:
            return "Broken"
        if not self.enabled:
            return "Disabled"
        if self.is_paused(at):
            return "Paused"
        return "Finished" if self.exhausted else "Active"

    def changed_since(self, before: Schedule) -> dict[str, list[Any]]:
        """Fields that differ from ``before``: name -> [old, new], for the change history."""
        watched = [f.attname for f in self._meta.concrete_fields if f.editable and not f.primary_key]
        pairs = {name: [getattr(before, name), getattr(self, name)] for name in watched}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
