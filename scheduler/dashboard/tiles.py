"""The figures in large type, each with the words that make it mean something. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.charts.looks import POSSIBLE as POSSIBLE_LOOK
from scheduler.charts.looks import Look, outcome
from scheduler.dashboard.bounds import none_of
from scheduler.dashboard.figures import Tally
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP, POSSIBLE, RAN_ONCE, TROUBLE
from scheduler.states import ExecutionState, TickOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure. ``tone`` is ok, calm, warn, bad or mute: a colour beside the word, never instead of it."""

    label: str
    value: str
    foot: str
    tone: str
    look: Look
    url: str = ""


def tiles(total: Tally, url: str = "") -> tuple[Tile, ...]:
    """Collisions, what was prevented, how the ticks ended; ``url`` shows the newest collision."""
    return (
        _collision("Overlaps, proven", OVERLAP, "two or more were inside at once", total, url),
        _collision("Overlaps, possible", POSSIBLE, "the stamps do not prove it", total, url),
        _collision("Duplicates", DUPLICATE, "the same tick ran again", total, url),
        _prevented(total),
        _ran_once(total),
        _trouble("Missed", total.missed, TickOutcome.MISFIRED, "nobody began in time"),
        _trouble(
            "Blocked",
            total.outcomes[TickOutcome.BLOCKED],
            TickOutcome.BLOCKED,
            "the lock store did not answer",
        ),
        _ended_badly(total),
    )


def _collision(label: str, word: str, meaning: str, total: Tally, url: str) -> Tile:
    number, ticks = total.too_many[word], total.hit[word]
    bad = "warn" if word == POSSIBLE else "bad"
    return Tile(
        label=label,
        value=f"{number:,}",
        foot=f"{meaning}, in {ticks:,} of {total.ticks:,} ticks" if number else none_of(total.ticks),
        tone=bad if number else "mute",
        look=POSSIBLE_LOOK if word == POSSIBLE else outcome(word),
        url=url if number else "",
    )


def _prevented(total: Tally) -> Tile:
    by_lock, by_guard = (total.refusals[state] for state in (ExecutionState.PREVENTED, ExecutionState.DUPLICATE))
    return Tile(
        label="Second runs prevented",
        value=f"{by_lock + by_guard:,}",
        foot=f"{by_lock:,} by a lock, {by_guard:,} by the tick guard",
        tone="calm" if by_lock + by_guard else "mute",
        look=outcome("prevented"),
    )


def _ran_once(total: Tally) -> Tile:
    number, gave_way = total.outcomes[RAN_ONCE], total.outcomes[TickOutcome.PREVENTED]
    foot = f"of {total.ticks:,} ticks"
    if gave_way:
        foot += f"; {gave_way:,} gave way to a run still inside"
    return Tile(
        label="Ran once",
        value=f"{number:,}",
        foot=foot,
        tone="ok" if number else "mute",
        look=outcome("executed"),
    )


def _trouble(label: str, number: int, word: str, meaning: str) -> Tile:
    return Tile(
        label=label,
        value=f"{number:,}",
        foot=meaning if number else "none",
        tone="warn" if number else "mute",
        look=outcome(word),
    )


def _ended_badly(total: Tally) -> Tile:
    counts = [(outcome(word).label.lower(), total.outcomes[word]) for word in TROUBLE]
    number = sum(count for _, count in counts)
    return Tile(
        label="Failed, crashed or lost",
        value=f"{number:,}",
        foot=", ".join(f"{count:,} {word}" for word, count in counts if count) or "none",
        tone="warn" if number else "mute",
        look=outcome("failed"),
    )
