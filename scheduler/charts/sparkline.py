"""A sparkline: the latest ticks of one schedule as small bars, the newest at the right. Pure.

Height and colour say the outcome: what is calm is low, what is bad is high. Its name says the counts in words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.charts.looks import badness, outcome

SLOTS = 60
STEP = 2  # pixels
HEIGHT = 16


@dataclass(frozen=True, slots=True)
class Bars:
    """The slots of one ``style``, the CSS class after ``aegis-s-``, as one path: a page draws many sparklines."""

    style: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """What the template draws."""

    bars: list[Bars]
    name: str
    width: int = SLOTS * STEP
    height: int = HEIGHT


def sparkline(words: Sequence[str]) -> Sparkline:
    """``words``: keys of ``looks``, the newest first; slots without a tick are a line at the bottom."""
    shown = list(words[:SLOTS])
    paths: dict[str, list[str]] = defaultdict(list)
    for n in range(SLOTS - len(shown)):
        paths["slot"].append(_bar(n, 1))
    for n, word in enumerate(reversed(shown), SLOTS - len(shown)):
        paths[outcome(word).style].append(_bar(n, _height(word)))
    return Sparkline(bars=[Bars(style, "".join(path)) for style, path in paths.items()], name=_name(shown))


def _height(word: str) -> int:
    if word in ("executed", "running", "open", "prevented"):
        return 8
    return 12 if badness(word) < badness("lost") else HEIGHT


def _bar(slot: int, high: int) -> str:
    return f"M{STEP * slot} {HEIGHT}v-{high}h1.5v{high}z"


def _name(words: Sequence[str]) -> str:
    if not words:
        return "No ticks yet"
    counted = sorted(Counter(words).items(), key=lambda item: -badness(item[0]))
    said = ", ".join(f"{number} {outcome(word).label.lower()}" for word, number in counted)
    return f"Last {len(words)} ticks: {said}" if len(words) > 1 else f"One tick: {said}"
