"""Instance: one worker or beat process that has been heard of."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scheduler.models.stored import Stored


class Instance(Stored):
    """A living part of the fleet. Shown to people; no decision about a lease is ever made from it."""

    class Kind(models.TextChoices):
        WORKER = "worker", "Worker"
        BEAT = "beat", "Beat"

    kind = models.CharField(max_length=10, choices=Kind.choices)
    name = models.CharField(max_length=255, help_text="Celery's node name, or beat@host.")
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    stopped_at = models.DateTimeField(null=True, help_text="Set by a clean shutdown only.")

    version = models.CharField(max_length=50, blank=True, db_default="", help_text="Of Aegis. Empty: not told.")
    stamp_version = models.PositiveIntegerField(null=True, help_text="The format of messages that it reads.")
    pool = models.CharField(max_length=50, blank=True, db_default="", help_text="Of a worker: prefork, threads ...")
    concurrency = models.PositiveIntegerField(null=True, help_text="Bodies that a worker may run at once.")
    queues = models.JSONField(null=True, help_text="The queues that a worker reads.")
    clock_offset = models.FloatField(null=True, help_text="Its clock less the database's, seconds.")
    clock_error = models.FloatField(null=True, help_text="The offset is right to this many seconds.")

    class Meta:
        db_table = "aegis_scheduler_instance"
        ordering = ["kind", "name", "-started_at"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "name", "pid", "started_at"], name="aegis_instance_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} pid {self.pid}"
