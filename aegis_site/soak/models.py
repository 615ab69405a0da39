"""What the bodies of a soak change: one counter a lock name, and a mark for each time they did."""

from __future__ import annotations

from django.db import models


class Counter(models.Model):
    """A value that a body reads, adds one to in Python, and writes back: two bodies at once lose an update."""

    name = models.CharField(primary_key=True, max_length=200)
    value = models.PositiveBigIntegerField(default=0)

    class Meta:
        db_table = "aegis_soak_counter"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


class Mark(models.Model):
    """One accepted effect, written in the transaction that changes the counter.

    ``at`` is the database's clock inside that transaction, so that it can be compared with the start of a later
    holder: a mark with a smaller token and a later time is a stale effect.
    """

    name = models.CharField(max_length=200)
    schedule = models.CharField(max_length=200)
    subject = models.CharField(max_length=200)
    execution = models.BigIntegerField()
    token = models.BigIntegerField(null=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "aegis_soak_mark"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.subject} by execution {self.execution}"
