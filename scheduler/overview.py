"""The overview in figures, for the command line: the catalog by state, and what 24 hours came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db.models import Count
from django.utils import timezone

from scheduler.charts import Window
from scheduler.dashboard.outcomes import OVERLAP, POSSIBLE
from scheduler.dashboard.schedule_facts import DAY, collisions
from scheduler.models import Execution, Schedule, Tick
from scheduler.states import ExecutionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """``schedules``: state -> number; ``outcomes``: how the ticks of 24 hours ended -> number."""

    schedules: dict[str, int]
    outcomes: dict[str, int]
    overlaps: int
    possible_overlaps: int
    running: int


def overview() -> Overview:
    """Five queries, whatever is stored."""
    now = timezone.now()
    fields = ("broken_reason", "enabled", "paused_at", "paused_until", "exhausted")
    words = Counter(schedule.state_word(now) for schedule in Schedule.objects.only(*fields))
    window = Window(start=now - DAY, end=now)
    ticks = Tick.objects.filter(fire_time__gte=window.start, fire_time__lt=window.end)
    ended = ticks.order_by().values_list("outcome").annotate(number=Count("pk"))
    collided = collisions(None, window)
    return Overview(
        schedules=dict(sorted(words.items())),
        outcomes={outcome or "open": number for outcome, number in sorted(ended)},
        overlaps=len(collided.ticks(OVERLAP)),
        possible_overlaps=len(collided.ticks(POSSIBLE)),
        running=Execution.objects.filter(state=ExecutionState.RUNNING).count(),
    )
