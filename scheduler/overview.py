"""The overview in figures, for the command line: the catalog by state, and what 24 hours came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from scheduler.dashboard.outcomes import OVERLAP, POSSIBLE
from scheduler.dashboard.schedule_facts import day_until
from scheduler.models import Execution, Schedule
from scheduler.states import ExecutionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """``schedules``: state -> number; ``outcomes``: how the ticks of 24 hours ended -> number.

    Overlaps are bodies too many. ``counted_from``: the figures begin then, where there is too much to count.
    """

    schedules: dict[str, int]
    outcomes: dict[str, int]
    overlaps: int
    possible_overlaps: int
    missed_fire_times: int
    counted_from: datetime | None
    running: int


def overview() -> Overview:
    """A fixed number of queries, whatever is stored."""
    now = timezone.now()
    fields = ("broken_reason", "enabled", "paused_at", "paused_until", "exhausted")
    words = Counter(schedule.state_word(now) for schedule in Schedule.objects.only(*fields))
    figures, cut = day_until(now)
    total = figures.total
    return Overview(
        schedules=dict(sorted(words.items())),
        outcomes={outcome or "open": number for outcome, number in sorted(total.ended.items())},
        overlaps=total.too_many[OVERLAP],
        possible_overlaps=total.too_many[POSSIBLE],
        missed_fire_times=total.missed,
        counted_from=cut,
        running=Execution.objects.filter(state=ExecutionState.RUNNING).count(),
    )
