"""The side-effect ledger: what the tasks really did.

Written by the bodies and never by Aegis, so that it can contradict the audit.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q


class Effect(models.Model):
    """One business effect: an invoice settled, an order shipped, a digest sent.

    Each fire time has one subject ("invoice 20261129-020000 of baseline"). Two rows with one subject are an
    effect that happened twice: money settled twice, two parcels, two e-mails.
    """

    class Kind(models.TextChoices):
        SETTLEMENT = "settlement", "Invoice settled"
        SHIPMENT = "shipment", "Order shipped"
        DIGEST = "digest", "Digest sent"

    kind = models.CharField(max_length=20, choices=Kind.choices)
    schedule = models.CharField(max_length=200)
    subject = models.CharField(max_length=255)
    amount_cents = models.PositiveIntegerField(default=0)
    resource = models.CharField(max_length=200, help_text="What must not be touched by two bodies at once.")
    worker = models.CharField(max_length=255)
    execution_id = models.BigIntegerField(
        null=True, help_text="The row of the audit that this body was told to be. No reference: the two are compared."
    )
    entered_at = models.DateTimeField(help_text="By the database's clock, first thing in the body.")
    left_at = models.DateTimeField(null=True, help_text="By the database's clock, last thing in the body.")

    class Meta:
        db_table = "aegis_demo_effect"
        ordering = ["-entered_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(left_at__isnull=True) | Q(left_at__gte=F("entered_at")),
                name="aegis_effect_ordered",
            ),
        ]
        indexes = [models.Index(fields=["schedule", "subject"], name="aegis_effect_subject")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.subject}"
