"""Time small actions side by side, so that what the machine does meanwhile touches all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(slots=True)
class Case:
    """One action: whose floor it belongs to, its name, and the seconds that each call took."""

    store: str
    name: str
    action: Callable[[], object]
    floor: bool = False
    ours: bool = False
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds."""
        return median(self._took)

    @property
    def p99(self) -> float:
        """Seconds."""
        return sorted(self._took)[int(len(self._took) * 0.99)]

    def ratio_to(self, floor: Case) -> float:
        """The median of the ratios of each round: what slows the machine for some rounds is in both halves."""
        pairs = zip(self.rounds, floor.rounds, strict=True)
        return median(median(mine) / median(its) for mine, its in pairs)

    @property
    def _took(self) -> list[float]:
        return [seconds for one in self.rounds for seconds in one]


def measure(cases: Sequence[Case], *, rounds: int, calls: int) -> None:
    """Call each action ``calls`` times a round, in turn, after a few calls that do not count."""
    for case in cases:
        for _ in range(20):
            case.action()
    for _ in range(rounds):
        for case in cases:
            case.rounds.append([_timed(case.action) for _ in range(calls)])


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def table(cases: Sequence[Case]) -> list[str]:
    """Lines: store, name, median and p99 in microseconds, ratio to the floor of the store."""
    floors = {case.store: case for case in cases if case.floor}
    return [
        f"{case.store:9} {case.name:58} {case.median * 1e6:7.0f} us  p99 {case.p99 * 1e6:7.0f} us"
        f"  x{case.ratio_to(floors[case.store]):.2f}"
        for case in cases
    ]
