"""The figures of a window, counted from plain rows. Pure.

Ticks are counted by outcome, each once (``outcomes``). Overlaps and duplicates are besides counted as what
they are, bodies too many, by the definition of ``scheduler.collisions``: the same figures that
``aegis demo`` compares with the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

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

    def include(self, other: Tally, strategy: str, guarded: bool) -> None:
        """Count all of ``other`` as well, which was under one strategy."""
        for name in ("outcomes", "ended", "too_many", "hit", "refusals"):
            if found := getattr(other, name):
                getattr(self, name).update(found)
        self.missed += other.missed
        if other.outcomes:
            self.strategies.add(strategy)
            self.guards.add(guarded)
        if other.latest:
            self.latest = max(self.latest or other.latest, other.latest)

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
    tallying = Tallying()
    tallying.add_cells(cells(ticks, Collisions.among(bodies, unlocked), refused, step=step))
    return tallying.figures()


def group_name(strategy: str, guarded: bool) -> str:
    """A strategy and the tick guard are two switches: a lock alone is not once per tick."""
    return strategy if guarded else f"{strategy}, tick guard off"


@dataclass(frozen=True, slots=True)
class Collisions:
    """The bodies too many, each with its word, and the ticks that they hit."""

    found: Sequence[tuple[Body, str]]
    collided: Collided

    @classmethod
    def among(cls, bodies: Collection[Body], unlocked: Collection[str] = ("none",)) -> Collisions:
        """Of these bodies, by the definition of ``scheduler.collisions``."""
        begun = {body.execution_id: body for body in bodies}
        met, repeated = overlaps(bodies, unlocked=unlocked), duplicates(bodies)
        found = (
            *((begun[overlap.execution_id], OVERLAP) for overlap in met.proven),
            *((begun[overlap.execution_id], POSSIBLE) for overlap in met.possible),
            *((begun[duplicate.execution_id], DUPLICATE) for duplicate in repeated),
        )
        tick_of = {number: body.tick_id for number, body in begun.items()}
        return cls(found, Collided.of(met, repeated, tick_of))

    @property
    def ticks(self) -> set[int]:
        """Those that collided in any way."""
        return {number for word in COLLISIONS for number in self.collided.ticks(word)}


class Cell(NamedTuple):
    """The smallest unit of counting. ``start`` is that of its bin, ``key`` its schedule."""

    start: datetime
    key: Key
    strategy: str
    guarded: bool


def cells(
    ticks: Iterable[TickRow], collisions: Collisions, refused: Iterable[RefusedRow], *, step: int
) -> dict[Cell, Tally]:
    """Count each tick in its cell, and each body too many in that of its tick, where that is among ``ticks``."""
    found: dict[Cell, Tally] = defaultdict(Tally)
    known: dict[int, Cell] = {}
    for tick in ticks:
        cell = Cell(bin_start(tick.fire_time, step), tick.key, tick.strategy, tick.guarded)
        known[tick.id] = cell
        _add(found[cell], tick, collisions.collided)
    for body, word in collisions.found:
        if cell_of_tick := known.get(body.tick_id):
            _collide(found[cell_of_tick], body, word)
    for row in refused:
        start = row.start or next((cell.start for cell in found if cell.key == row.key), _NEVER)
        found[Cell(start, row.key, row.strategy, row.guarded)].refusals[row.state] += row.number
    return found


_NEVER = datetime.fromtimestamp(0, tz=UTC)


def bin_start(instant: datetime, step: int) -> datetime:
    """Bins lie on the grid of the epoch."""
    return datetime.fromtimestamp(int(instant.timestamp()) // step * step, tz=UTC)


def _add(tally: Tally, tick: TickRow, collided: Collided) -> None:
    word = outcome_of(tick.id, tick.state, tick.outcome, collided)
    tally.outcomes[word] += tick.number
    tally.ended[tick.outcome] += tick.number
    for name in COLLISIONS:
        if tick.id in collided.ticks(name):
            tally.hit[name] += tick.number
    if tick.outcome == TickOutcome.MISFIRED:
        tally.missed += max(tick.number, tick.missed)


def _collide(tally: Tally, body: Body, word: str) -> None:
    until = body.ended_at or body.heartbeat_at or body.started_at
    moment = Moment(start=body.started_at, end=until, execution_id=body.execution_id)
    tally.too_many[word] += 1
    tally.latest = max(tally.latest or moment, moment)


class Tallying:
    """Tallies of everything that a cell belongs to."""

    def __init__(self) -> None:
        self.total = Tally()
        self.schedules: dict[Key, Tally] = defaultdict(Tally)
        self.groups: dict[str, Tally] = defaultdict(Tally)
        self.bins: dict[datetime, Counter[str]] = defaultdict(Counter)
        self.group_bins: dict[str, dict[datetime, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def add_cells(self, found: Mapping[Cell, Tally]) -> None:
        """Count whole cells."""
        for cell, tally in found.items():
            self.add_sum(cell.key, cell.strategy, cell.guarded, tally)
            if tally.outcomes:
                self.add_bin(cell.start, cell.strategy, cell.guarded, tally.outcomes)

    def add_sum(self, key: Key, strategy: str, guarded: bool, tally: Tally) -> None:
        """Count what does not tell when it was."""
        self.total.include(tally, strategy, guarded)
        self.schedules[key].include(tally, strategy, guarded)
        if tally.outcomes:
            self.groups[group_name(strategy, guarded)].include(tally, strategy, guarded)

    def add_bin(self, start: datetime, strategy: str, guarded: bool, outcomes: Counter[str]) -> None:
        """Count when it was, and nothing else."""
        self.bins[start].update(outcomes)
        if found := {word: outcomes[word] for word in COLLISIONS if outcomes[word]}:
            self.group_bins[group_name(strategy, guarded)][start].update(found)

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
