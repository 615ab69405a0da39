"""What the list and the page of schedules say of each: its latest ticks, collisions of a day, and how long it runs.

A fixed number of queries for any number of schedules, each within a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from scheduler.audit import bodies_of
from scheduler.charts import Window
from scheduler.charts.looks import Look
from scheduler.charts.looks import outcome as look_of
from scheduler.dashboard import latest, rows, window_rows
from scheduler.dashboard.figures import Collisions, Figures
from scheduler.dashboard.headroom import Lease, lease_that_guards
from scheduler.dashboard.outcomes import OPEN, OVERLAP, POSSIBLE, Collided, outcome_of
from scheduler.dashboard.summary import aligned, figures_in
from scheduler.models import Execution, Schedule
from scheduler.states import TickOutcome

DAY = timedelta(hours=24)
STEP = 1_800  # seconds, of the figures' bins


class TickFact(NamedTuple):
    """One tick of a schedule. ``ran``: its longest body, seconds; ``word``: a key of ``charts.looks``."""

    id: int
    fire_time: datetime
    strategy: str
    ttl: float
    ran: float | None
    workers: tuple[str, ...]
    token: int | None
    rivals: int
    began: datetime | None
    word: str

    @property
    def look(self) -> Look:
        """How its outcome is drawn and called."""
        return look_of(self.word)

    @property
    def waited(self) -> float | None:
        """Seconds from its fire time to its first start."""
        return None if self.began is None else max(0.0, (self.began - self.fire_time).total_seconds())


@dataclass(slots=True)
class Facts:
    """Of one schedule. ``ticks``: the newest first; the counts are those of 24 hours, or ``counted_from`` then on.

    ``counts``: ticks by how they ended; ``overlaps`` and ``possible``: bodies too many; ``missed``: fire times;
    ``once``: ticks that one body ran to its end, and none beside it. ``prevented``: second runs, each try of one.
    """

    ticks: list[TickFact] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    possible: int = 0
    missed: int = 0
    once: int = 0
    prevented: int = 0
    counted_from: datetime | None = None
    lease: Lease | None = None

    @property
    def last(self) -> TickFact | None:
        """The newest that is over."""
        return next((tick for tick in self.ticks if tick.word not in (OPEN, "running")), None)

    def percentile(self, share: float) -> float | None:
        """Of the latest runs, seconds; None where there are fewer than five."""
        return latest.percentile((tick.ran for tick in self.ticks), share)

    @property
    def headroom(self) -> float | None:
        """The share of the lease that nineteen runs of twenty leave over."""
        p95 = self.percentile(0.95)
        return None if p95 is None or self.lease is None else self.lease.left(p95)


def facts_of(schedules: Collection[Schedule], now: datetime) -> dict[int, Facts]:
    """By the schedules' ids. ``now``: the end of the 24 hours."""
    found = {schedule.pk: Facts() for schedule in schedules}
    if not found:
        return found
    with window_rows.uncompiled():
        ticks = latest.ticks_of(found)
        collided = _collided([row[1] for row in ticks])
        _count(found, now)
    for pk, tick, at, state, outcome, alias, ttl, ran, workers, token, rivals, began in ticks:
        word = outcome_of(tick, state, outcome, collided)
        fact = TickFact(tick, at, alias, ttl, ran, tuple(workers or ()), token, rivals, began, word)
        found[pk].ticks.append(fact)
    for schedule in schedules:
        found[schedule.pk].lease = lease_that_guards(schedule)
    return found


def _collided(ticks: Collection[int]) -> Collided:
    """Which of these ticks collided, by their own bodies and those beside them under their lock names."""
    near = window_rows.company_of_ticks(ticks, rows.MOST_BODIES)
    bodies = bodies_of(Execution.objects.filter(pk__in=near)) if near else []
    return Collisions.among(bodies, rows.unlocked_aliases()).collided


def day_until(now: datetime, schedule_id: int | None = None) -> tuple[Figures, datetime | None]:
    """The figures of 24 hours as the overview counts them, and from when on where there is too much to count."""
    return figures_in(aligned(Window(start=now - DAY, end=now), STEP), STEP, schedule_id)


def _count(found: Mapping[int, Facts], now: datetime) -> None:
    figures, cut = day_until(now, next(iter(found)) if len(found) == 1 else None)
    for facts in found.values():
        facts.counted_from = cut
    for (pk, _name), tally in figures.schedules.items():
        if pk is not None and pk in found:
            facts = found[pk]
            for outcome, number in tally.ended.items():
                facts.counts[outcome or OPEN] += number
            facts.overlaps += tally.too_many[OVERLAP]
            facts.possible += tally.too_many[POSSIBLE]
            facts.missed += tally.missed
            facts.prevented += sum(tally.refusals.values())
            facts.once += tally.outcomes[TickOutcome.EXECUTED]


def overlapping(now: datetime) -> set[int]:
    """The schedules with a proven or possible overlap in 24 hours."""
    figures, _ = day_until(now)
    found = figures.schedules.items()
    return {pk for (pk, _), tally in found if pk is not None and (tally.hit[OVERLAP] or tally.hit[POSSIBLE])}
