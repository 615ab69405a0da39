"""MeasuredRun and MeasuredCell: what a run of ``aegis soak`` showed, loaded by ``aegis matrix load``."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler.models.stored import Stored


class MeasuredRun(Stored):
    """One run and its conditions. The same run is stored once: ``digest`` is of its file."""

    digest = models.CharField(max_length=64, unique=True)
    measured_at = models.DateTimeField(help_text="When the run ended, UTC.")
    loaded_at = models.DateTimeField(db_default=Now())
    version = models.CharField(max_length=50)
    commit = models.CharField(max_length=100, blank=True)
    seed = models.BigIntegerField()
    ticks = models.PositiveIntegerField()
    seconds = models.FloatField()
    workers = models.PositiveIntegerField()
    beats = models.PositiveIntegerField()
    tick_guard = models.BooleanField()
    commit_guard = models.BooleanField()
    strategies = models.JSONField(default=dict, help_text="Of each strategy: ticks, takeovers, takeover_p99_s.")

    class Meta:
        db_table = "aegis_scheduler_measuredrun"
        ordering = ["-measured_at", "-id"]
        verbose_name = "measured run"

    def __str__(self) -> str:
        return f"soak of {self.measured_at:%Y-%m-%d %H:%M} UTC, {self.ticks:,} ticks, seed {self.seed}"


class MeasuredCell(Stored):
    """One kind of fault under one strategy: how often it was made, whom it hit, and what came of it."""

    run = models.ForeignKey(MeasuredRun, on_delete=models.CASCADE, related_name="cells")
    fault = models.CharField(max_length=40)
    strategy = models.CharField(max_length=100)
    injected = models.PositiveIntegerField(help_text="Faults of this kind that could reach the strategy.")
    bodies_hit = models.PositiveIntegerField(help_text="Bodies of the strategy that were inside and were touched.")
    duplicates = models.PositiveIntegerField()
    overlaps = models.PositiveIntegerField()
    stale_effects = models.PositiveIntegerField(help_text="Effects written after a later holder had started.")
    missed = models.PositiveIntegerField(help_text="Fire times without a body.")
    lost = models.PositiveIntegerField(help_text="Runs that ended as lost, abandoned or failed.")
    alone = models.PositiveIntegerField(
        help_text="Duplicates, overlaps and stale effects that no other fault explains as well."
    )
    broken_promises = models.PositiveIntegerField()

    class Meta:
        db_table = "aegis_scheduler_measuredcell"
        ordering = ["run", "fault", "strategy"]
        verbose_name = "measured cell"
        constraints = [
            models.UniqueConstraint(fields=["run", "fault", "strategy"], name="aegis_measured_cell_once"),
            models.CheckConstraint(condition=Q(injected__gte=1), name="aegis_measured_cell_was_injected"),
        ]

    def __str__(self) -> str:
        return f"{self.fault} under {self.strategy}"
