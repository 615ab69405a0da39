"""LockName: one protected resource and the strategy that guards it."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from locks import lock_backends
from locks.base import validate_name
from scheduler.models.stored import Stored


def check_name(value: str) -> None:
    """Refuse a lock name that a store could not keep, as a field error."""
    try:
        validate_name(value)
    except ValueError as refusal:
        raise ValidationError(str(refusal)) from refusal


def check_alias(value: str) -> None:
    """Refuse an alias that ``settings.LOCKS`` does not define, naming those that it does."""
    known = sorted(lock_backends.aliases())
    if value not in known:
        raise ValidationError(
            f'There is no lock strategy "{value}". Choose one of: {", ".join(known)}, or add it to LOCKS.'
        )


class LockName(Stored):
    """A lock name as a row, so that every schedule that shares it shares its strategy.

    Two strategies cannot see each other's leases. Told as a timeline: tick 1 runs for a minute under ``redis``;
    somebody edits the schedule to ``database``; tick 2 takes a free database lease and overlaps tick 1. So an
    edit only changes ``alias_wanted``; the ticker copies it to ``alias_in_force`` when no tick under the name is
    open and no body under it runs, with this row locked. The fence row of the name is made by a trigger.
    """

    name = models.CharField(
        max_length=200,
        primary_key=True,
        validators=[check_name],
        help_text="What must not run twice at the same time: lower-case letters, digits and . _ : -",
    )
    alias_wanted = models.CharField(
        "strategy",
        max_length=100,
        validators=[check_alias],
        help_text="An alias of LOCKS. A change comes into force when nothing under this name is open.",
    )
    alias_in_force = models.CharField(
        "strategy in force",
        max_length=100,
        blank=True,
        editable=False,
        help_text="The strategy that guards the name now; written by the ticker only.",
    )

    class Meta:
        db_table = "aegis_scheduler_lockname"
        ordering = ["name"]
        verbose_name = "lock name"
        indexes = [
            models.Index(
                fields=["name"],
                condition=~Q(alias_in_force="") & ~Q(alias_in_force=F("alias_wanted")),
                name="aegis_lockname_switching",
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(alias_wanted=""), name="aegis_lockname_alias_wanted_set"),
            models.CheckConstraint(condition=Q(name__regex=r"^[a-z0-9._:-]{1,200}$"), name="aegis_lockname_spelling"),
        ]

    def __str__(self) -> str:
        return self.name
