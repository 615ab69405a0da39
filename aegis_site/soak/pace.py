"""What this machine can bear: how often the schedules of a soak fire, and when there was no CPU time left.

A machine without CPU time runs its beats late, and fire times are missed that no fault explains. So the period
follows the machine, and where that was not enough the run says so.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

import psutil

from locks.clock import boottime

# CPU seconds of a tick, with all that is behind it in beats, workers, broker and stores, for each CPU second that the
# start of a worker takes. Measured: both grow alike where a machine is slower.
TICK_FOR_START = 0.016
# The share of the machine that ticks may take; the rest is for faults, and for what has to be done again after them.
SHARE = 0.6
# From this share on, percent, a second counts as busy; from this part of busy seconds on a time counts as starved.
BUSY = 97.0
MOSTLY = 0.8


def cost_of_start(pid: int) -> float:
    """CPU seconds that process ``pid``, which has just started, has used without its children."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def bearable_period(schedules: int, start: float, cores: int) -> int:
    """The period of ``schedules`` schedules, whole seconds: as short as ``cores`` cores bear it."""
    return max(1, math.ceil(schedules * start * TICK_FOR_START / (cores * SHARE)))


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the machine was, percent, in each second that ended at a ``boottime()``."""

    seconds: list[tuple[float, float]] = field(default_factory=list)

    def starved(self, start: float, end: float) -> bool:
        """Whether most of the time from ``start`` to ``end`` left no CPU time to spare."""
        busy = [percent >= BUSY for at, percent in self.seconds if start <= at <= end]
        return sum(busy) > MOSTLY * len(busy)


class LoadWatch:
    """Fills a ``Load``, each second, from a thread of its own."""

    def __init__(self) -> None:
        self.load = Load()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="load", daemon=True)

    def __enter__(self) -> Load:
        psutil.cpu_percent(None)
        self._thread.start()
        return self.load

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            self.load.seconds.append((boottime(), psutil.cpu_percent(None)))
