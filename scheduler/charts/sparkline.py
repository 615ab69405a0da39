"""A sparkline: the latest ticks of one schedule as small bars, the newest at the right. Pure.

Height and colour say the outcome: what is calm is low, what is bad is high. Its name says the counts in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.charts.looks import badness, outcome

SLOTS = 60
STEP = 2  # pixels
HEIGHT = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """One slot; ``style`` is the CSS class after ``aegis-``."""

    x: int
    y: int
    height: int
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """What the template draws."""

    bars: list[Bar]
    name: str
    width: int = SLOTS * STEP
    height: int = HEIGHT


def sparkline(words: Sequence[str]) -> Sparkline:
    """``words``: keys of ``looks``, the newest first; slots without a tick are a line at the bottom."""
    shown = list(words[:SLOTS])
    bars = [Bar(STEP * n, HEIGHT - 1, 1, "slot") for n in range(SLOTS - len(shown))]
    for n, word in enumerate(reversed(shown), SLOTS - len(shown)):
        high = (
            8
            if word in ("executed", "running", "open", "prevented")
            else 12
            if badness(word) < badness("lost")
            else 16
        )
        bars.append(Bar(STEP * n, HEIGHT - high, high, outcome(word).style))
    return Sparkline(bars=bars, name=_name(shown))


def _name(words: Sequence[str]) -> str:
    if not words:
        return "No ticks yet"
    counted = sorted(Counter(words).items(), key=lambda item: -badness(item[0]))
    said = ", ".join(f"{number} {outcome(word).label.lower()}" for word, number in counted)
    return f"Last {len(words)} ticks: {said}" if len(words) > 1 else f"One tick: {said}"
