"""Time small actions side by side, so that what the machine does meanwhile touches all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Case:
    """One action: whose floor it belongs to, its name, and the seconds that each call took."""

    store: str
    name: str
    action: Callable[[], object]
    floor: bool = False
    ours: bool = False
    took: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds."""
        return sorted(self.took)[len(self.took) // 2]

    @property
    def p99(self) -> float:
        """Seconds."""
        return sorted(self.took)[int(len(self.took) * 0.99)]


def measure(cases: Sequence[Case], *, rounds: int, calls: int) -> None:
    """Call each action ``calls`` times a round, in turn, after a few calls that do not count."""
    for case in cases:
        for _ in range(20):
            case.action()
    for _ in range(rounds):
        for case in cases:
            for _ in range(calls):
                began = time.perf_counter()
                case.action()
                case.took.append(time.perf_counter() - began)


def table(cases: Sequence[Case]) -> list[str]:
    """Lines: store, name, median and p99 in microseconds, ratio to the floor of the store."""
    floors = {case.store: case.median for case in cases if case.floor}
    return [
        f"{case.store:9} {case.name:58} {case.median * 1e6:7.0f} us  p99 {case.p99 * 1e6:7.0f} us"
        f"  x{case.median / floors[case.store]:.2f}"
        for case in cases
    ]
