"""The figures of a window, counted from plain rows. Pure.

Ticks are counted by outcome, each once (``outcomes``). Overlaps and duplicates are besides counted as what
they are, bodies too many, by the definition of ``scheduler.collisions``: the same figures that
``aegis demo`` compares with the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from scheduler.charts import Count
from scheduler.collisions import Body, duplicates, overlaps
from scheduler.dashboard.facts import Key, RefusedRow, TickRow
from scheduler.dashboard.outcomes import COLLISIONS, DUPLICATE, OVERLAP, POSSIBLE, Collided, outcome_of
from scheduler.states import TickOutcome


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Moment:
    """When a body too many was inside, as far as is known, and which."""

    start: datetime
    end: datetime
    execution_id: int


@dataclass(slots=True, kw_only=True)
class Tally:
    """Figures over some ticks.

    ``outcomes`` counts ticks, each once; ``ended`` by their own outcome, collided or not; ``too_many`` bodies, by
    collision; ``hit`` the ticks that had such a body, whatever else happened to them. ``refusals`` counts tries:
    ``prevented`` by a lock, ``duplicate`` by the tick guard. ``missed`` counts fire times, of which one tick may
    stand for many. ``latest`` is the newest collision.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    too_many: Counter[str] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    strategies: set[str] = field(default_factory=set)
    guards: set[bool] = field(default_factory=set)
    latest: Moment | None = None

    @property
    def ticks(self) -> int:
        """How many."""
        return self.outcomes.total()

    @property
    def collided(self) -> int:
        """Ticks whose bodies collided, possibly ones too."""
        return sum(self.outcomes[word] for word in COLLISIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All of a window: in total, over time, by strategy over time, and by schedule."""

    total: Tally
    bins: tuple[Count, ...]
    groups: dict[str, tuple[Tally, tuple[Count, ...]]]
    schedules: dict[Key, Tally]


def count(
    ticks: Sequence[TickRow],
    bodies: Collection[Body],
    refused: Iterable[RefusedRow],
    *,
    step: int,
    unlocked: Collection[str] = ("none",),
) -> Figures:
    """Count ``ticks``; ``bodies`` are theirs and those inside beside them; bins are ``step`` seconds."""
    tally = _Tallying(step)
    collided = _collisions(tally, {tick.id: tick for tick in ticks}, bodies, unlocked)
    for tick in ticks:
        tally.add(tick, outcome_of(tick.id, tick.state, tick.outcome, collided), collided)
    for row in refused:
        tally.total.refusals[row.state] += row.number
        tally.schedules[row.key].refusals[row.state] += row.number
    return tally.figures()


def group_name(strategy: str, guarded: bool) -> str:
    """A strategy and the tick guard are two switches: a lock alone is not once per tick."""
    return strategy if guarded else f"{strategy}, tick guard off"


def _collisions(
    tally: _Tallying, ticks: dict[int, TickRow], bodies: Collection[Body], unlocked: Collection[str]
) -> Collided:
    """Count collisions of which the body too many belongs to one of the ticks; returns the ticks they hit."""
    begun = {body.execution_id: body for body in bodies}
    met, repeated = overlaps(bodies, unlocked=unlocked), duplicates(bodies)
    for number, word in (
        *((overlap.execution_id, OVERLAP) for overlap in met.proven),
        *((overlap.execution_id, POSSIBLE) for overlap in met.possible),
        *((duplicate.execution_id, DUPLICATE) for duplicate in repeated),
    ):
        if tick := ticks.get(begun[number].tick_id):
            tally.collide(tick, begun[number], word)
    return Collided.of(met, repeated, {number: body.tick_id for number, body in begun.items()})


class _Tallying:
    """Tallies of everything that a tick belongs to."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.total = Tally()
        self.schedules: dict[Key, Tally] = defaultdict(Tally)
        self.groups: dict[str, Tally] = defaultdict(Tally)
        self.bins: dict[datetime, Counter[str]] = defaultdict(Counter)
        self.group_bins: dict[str, dict[datetime, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def _of(self, tick: TickRow) -> tuple[Tally, ...]:
        return self.total, self.schedules[tick.key], self.groups[group_name(tick.strategy, tick.guarded)]

    def collide(self, tick: TickRow, body: Body, word: str) -> None:
        """Count one body too many of ``tick``."""
        until = body.ended_at or body.heartbeat_at or body.started_at
        moment = Moment(start=body.started_at, end=until, execution_id=body.execution_id)
        for tally in self._of(tick):
            tally.too_many[word] += 1
            tally.latest = max(tally.latest or moment, moment)

    def add(self, tick: TickRow, word: str, collided: Collided) -> None:
        """Count one tick, which came to ``word``."""
        start = datetime.fromtimestamp(int(tick.fire_time.timestamp()) // self.step * self.step, tz=UTC)
        hits = [name for name in COLLISIONS if tick.id in collided.ticks(name)]
        for tally in self._of(tick):
            tally.outcomes[word] += 1
            tally.ended[tick.outcome] += 1
            tally.hit.update(hits)
            tally.strategies.add(tick.strategy)
            tally.guards.add(tick.guarded)
            tally.missed += max(1, tick.missed) if word == TickOutcome.MISFIRED else 0
        self.bins[start][word] += 1
        if word in COLLISIONS:
            self.group_bins[group_name(tick.strategy, tick.guarded)][start][word] += 1

    def figures(self) -> Figures:
        """What was counted, groups and schedules by name."""
        groups = {
            name: (self.groups[name], _counts(self.group_bins[name]))
            for name in sorted(self.groups, key=lambda name: (-self.groups[name].collided, name))
        }
        schedules = dict(sorted(self.schedules.items(), key=lambda item: (item[0][1], item[0][0] or 0)))
        return Figures(total=self.total, bins=_counts(self.bins), groups=groups, schedules=schedules)


def _counts(bins: dict[datetime, Counter[str]]) -> tuple[Count, ...]:
    return tuple(Count(start=start, values=dict(bins[start])) for start in sorted(bins))
