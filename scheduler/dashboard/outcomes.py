"""What a tick came to, in one word, by one definition for every page. Pure.

Each tick counts once, by the worst of what happened to it:

1. ``overlap``: one of its bodies began while another under its lock name was inside, *proven*;
2. ``duplicate``: its body ran more than once;
3. ``possible_overlap``: one of its bodies *possibly* began while another was inside;
4. else how the tick itself ended: ``lost``, ``failed``, ``abandoned`` (crashed), ``misfired`` (missed),
   ``blocked``, ``revoked``, ``prevented`` (it gave way: nobody ran it) or ``executed`` (ran once, whether or
   not rivals were refused);
5. a tick that is not over is ``running`` once somebody began it, else ``open``.

A tick whose first attempt crashed and whose second was executed ran once: the tick's own outcome is the last
word. ``scheduler.collisions`` defines overlap and duplicate; the words and colours are
``scheduler.charts.looks``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scheduler.collisions import Duplicate, Overlaps
from scheduler.states import TickOutcome, TickState

OVERLAP, DUPLICATE, POSSIBLE = "overlap", "duplicate", "possible_overlap"
RUNNING, OPEN = "running", "open"
# From the worst down.
COLLISIONS = (OVERLAP, DUPLICATE, POSSIBLE)
RAN_ONCE = TickOutcome.EXECUTED.value
# Ended without a result of its own making.
TROUBLE = (TickOutcome.FAILED.value, TickOutcome.ABANDONED.value, TickOutcome.LOST.value)


@dataclass(frozen=True, slots=True)
class Collided:
    """The ticks whose bodies collided, by the word for it."""

    found: Mapping[str, Collection[int]]

    @classmethod
    def of(cls, overlaps: Overlaps, duplicates: Collection[Duplicate], tick_of: Mapping[int, int]) -> Collided:
        """From collisions; ``tick_of`` maps executions to ticks. An overlap falls on the newcomer's tick."""
        return cls(
            {
                OVERLAP: frozenset(tick_of[overlap.execution_id] for overlap in overlaps.proven),
                DUPLICATE: frozenset(duplicate.tick_id for duplicate in duplicates),
                POSSIBLE: frozenset(tick_of[overlap.execution_id] for overlap in overlaps.possible),
            }
        )

    def ticks(self, word: str) -> Collection[int]:
        """Those that collided in this way."""
        return self.found.get(word, ())


def outcome_of(tick_id: int, state: str, outcome: str, collided: Collided) -> str:
    """The one word: a key of ``scheduler.charts.looks``."""
    for word in COLLISIONS:
        if tick_id in collided.ticks(word):
            return word
    return outcome or (RUNNING if state == TickState.STARTED else OPEN)
