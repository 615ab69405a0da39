"""SummedSlice and SliceTally: the figures of five minutes that are over, so that a page need not count their rows."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scheduler.models.stored import Stored


class SummedSlice(Stored):
    """Five minutes of fire times whose every tick is over and whose every body has ended.

    Whatever is heard of them later deletes the row, and they are summed again (``scheduler.summing``). No row: the
    pages count the ticks themselves.
    """

    start = models.DateTimeField(primary_key=True)
    summed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "aegis_scheduler_summedslice"
        ordering = ["-start"]

    def __str__(self) -> str:
        return f"five minutes from {self.start:%Y-%m-%d %H:%M} UTC"


def _number() -> models.PositiveIntegerField:
    return models.PositiveIntegerField(default=0)


class SliceTally(Stored):
    """The figures of one schedule under one strategy in one slice, as ``scheduler.dashboard.figures`` counts them.

    The first eleven count ticks, each once, by the worst that happened to it.
    """

    slice = models.ForeignKey(SummedSlice, on_delete=models.CASCADE, related_name="tallies")
    schedule_id = models.BigIntegerField(default=0, help_text="Kept when the schedule is deleted; 0 for calls.")
    schedule = models.CharField(max_length=255, help_text="Its name then, or the task of a call.")
    strategy = models.CharField(max_length=100)
    guarded = models.BooleanField()

    executed = _number()
    prevented = _number()
    blocked = _number()
    revoked = _number()
    misfired = _number()
    failed = _number()
    abandoned = _number()
    lost = _number()
    overlap = _number()
    duplicate = _number()
    possible_overlap = _number()

    ended_executed = _number()
    ended_prevented = _number()
    ended_blocked = _number()
    ended_revoked = _number()
    ended_misfired = _number()
    ended_failed = _number()
    ended_abandoned = _number()
    ended_lost = _number()
    too_many_overlap = _number()
    too_many_duplicate = _number()
    too_many_possible_overlap = _number()
    hit_overlap = _number()
    hit_duplicate = _number()
    hit_possible_overlap = _number()
    refused_prevented = _number()
    refused_duplicate = _number()
    missed = _number()

    latest_start = models.DateTimeField(null=True, help_text="When the newest body too many began.")
    latest_end = models.DateTimeField(null=True)
    latest_execution = models.BigIntegerField(null=True)

    class Meta:
        db_table = "aegis_scheduler_slicetally"
        constraints = [
            models.UniqueConstraint(
                fields=["slice", "schedule_id", "schedule", "strategy", "guarded"],
                name="aegis_slice_tally_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule} under {self.strategy}"
