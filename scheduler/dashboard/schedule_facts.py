"""What the list and the page of schedules say of each: its latest ticks, collisions of a day, and how long it runs.

A fixed number of queries for any number of schedules, each within a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from scheduler.charts import Window
from scheduler.charts.looks import Look
from scheduler.charts.looks import outcome as look_of
from scheduler.collisions import duplicates, overlaps
from scheduler.dashboard import latest, rows
from scheduler.dashboard.headroom import Lease, lease_that_guards
from scheduler.dashboard.outcomes import OPEN, OVERLAP, POSSIBLE, Collided, outcome_of
from scheduler.dashboard.summary import aligned, figures_in
from scheduler.models import Schedule
from scheduler.states import TickOutcome

DAY = timedelta(hours=24)
STEP = 1_800  # seconds, of the figures' bins
MOST_BODIES = 500  # newest ones whose collisions are marked in the sparklines


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
    """Of one schedule. ``ticks``: the newest first; the counts are those of 24 hours.

    ``once``: ticks that one body ran to its end, and none beside it.
    """

    ticks: list[TickFact] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    possible: int = 0
    once: int = 0
    lease: Lease | None = None

    @property
    def prevented(self) -> int:
        """Ticks that gave way to a run inside."""
        return self.counts[TickOutcome.PREVENTED]

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
    window = Window(start=now - DAY, end=now)
    collided = collisions({schedule.lock_id for schedule in schedules}, window)
    for pk, tick, at, state, outcome, alias, ttl, ran, workers, token, rivals, began in latest.ticks_of(found):
        word = outcome_of(tick, state, outcome, collided)
        fact = TickFact(tick, at, alias, ttl, ran, tuple(workers or ()), token, rivals, began, word)
        found[pk].ticks.append(fact)
    _count(found, window)
    for schedule in schedules:
        found[schedule.pk].lease = lease_that_guards(schedule)
    return found


def collisions(lock_names: Collection[str] | None, window: Window) -> Collided:
    """The ticks whose bodies collided, of the newest bodies in the window, of these lock names or of all."""
    bodies, _ = rows.bodies_in(window, lock_names, MOST_BODIES)
    met, repeated = overlaps(bodies, unlocked=rows.unlocked_aliases()), duplicates(bodies)
    return Collided.of(met, repeated, {body.execution_id: body.tick_id for body in bodies})


def _count(found: Mapping[int, Facts], window: Window) -> None:
    """The figures of the day, as the overview counts them."""
    figures, _ = figures_in(aligned(window, STEP), STEP)
    for (pk, _name), tally in figures.schedules.items():
        facts = found.get(pk) if pk is not None else None
        if facts is not None:
            for outcome, number in tally.ended.items():
                facts.counts[outcome or OPEN] += number
            facts.overlaps += tally.hit[OVERLAP]
            facts.possible += tally.hit[POSSIBLE]
            facts.once += tally.outcomes[TickOutcome.EXECUTED]


def overlapping(window: Window) -> set[int]:
    """The schedules with a proven or possible overlap in the window."""
    figures, _ = figures_in(aligned(window, STEP), STEP)
    found = figures.schedules.items()
    return {pk for (pk, _), tally in found if pk is not None and (tally.hit[OVERLAP] or tally.hit[POSSIBLE])}
