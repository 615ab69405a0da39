"""The figures in large type, each with the words that make it mean something. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.charts.looks import POSSIBLE as POSSIBLE_LOOK
from scheduler.charts.looks import Look, outcome
from scheduler.dashboard.bounds import none_of
from scheduler.dashboard.figures import Tally
from scheduler.dashboard.links import Links
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP, POSSIBLE, RAN_ONCE
from scheduler.states import ExecutionState, TickOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure. ``tone`` is ok, calm, warn, bad or mute: a colour beside the word, never instead of it.

    ``leads`` says what is behind ``url``.
    """

    label: str
    value: str
    foot: str
    tone: str
    look: Look
    url: str = ""
    leads: str = ""


def tiles(total: Tally, links: Links) -> tuple[Tile, ...]:
    """Collisions, what was prevented, how the ticks ended; each leads to what it counts."""
    newest = links.around(total.latest, None) if total.latest else ""
    return (
        _collision("Overlaps, proven", OVERLAP, "two or more were inside at once", total, newest),
        _collision("Overlaps, possible", POSSIBLE, "the stamps do not prove it", total, newest),
        _collision("Duplicates", DUPLICATE, "the same tick ran again", total, newest),
        _prevented(total, links),
        _ran_once(total, links),
        _missed(total, links),
        _trouble("Lost lease", (TickOutcome.LOST,), "the lease ended before the body did", total, links),
        _trouble(
            "Blocked", (TickOutcome.BLOCKED,), "the lock store did not answer, or a guard was open", total, links
        ),
        _trouble("Failed", (TickOutcome.FAILED, TickOutcome.ABANDONED), "", total, links),
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
        leads="the latest on the timeline",
    )


def _prevented(total: Tally, links: Links) -> Tile:
    states = (ExecutionState.PREVENTED, ExecutionState.DUPLICATE)
    by_lock, by_guard = (total.refusals[state] for state in states)
    return Tile(
        label="Second runs prevented",
        value=f"{by_lock + by_guard:,}",
        foot=f"{by_lock:,} by a lock, {by_guard:,} by the tick guard",
        tone="calm" if by_lock + by_guard else "mute",
        look=outcome("prevented"),
        url=links.executions(",".join(states)) if by_lock + by_guard else "",
        leads="these executions",
    )


def _ran_once(total: Tally, links: Links) -> Tile:
    number, gave_way = total.outcomes[RAN_ONCE], total.outcomes[TickOutcome.PREVENTED]
    foot = f"{number:,} of {total.ticks:,} ticks"
    if gave_way:
        foot += f"; {gave_way:,} gave way to a run still inside"
    return Tile(
        label="Ran once",
        value=share(number, total.ticks) if total.ticks else "-",
        foot=foot,
        tone="ok" if number else "mute",
        look=outcome("executed"),
        url=links.ticks(RAN_ONCE) if number else "",
        leads="ticks that were executed",
    )


def share(part: int, whole: int) -> str:
    """``99.1 %``; never rounded up to all or down to nothing."""
    exact = 100 * part / whole
    shown = min(max(exact, 0.1), 99.9) if 0 < part < whole else exact
    return f"{shown:.0f} %" if part in (0, whole) else f"{shown:.1f} %"


def _missed(total: Tally, links: Links) -> Tile:
    return Tile(
        label="Missed",
        value=f"{total.missed:,}",
        foot="fire times that nobody began in time" if total.missed else "none",
        tone="warn" if total.missed else "mute",
        look=outcome(TickOutcome.MISFIRED),
        url=links.ticks(TickOutcome.MISFIRED) if total.missed else "",
        leads="these ticks",
    )


def _trouble(label: str, outcomes: tuple[str, ...], meaning: str, total: Tally, links: Links) -> Tile:
    counts = [(outcome(word).label.lower(), total.ended[word]) for word in outcomes]
    number = sum(count for _, count in counts)
    told = meaning or ", ".join(f"{count:,} {word}" for word, count in counts if count)
    return Tile(
        label=label,
        value=f"{number:,}",
        foot=told if number else "none",
        tone="warn" if number else "mute",
        look=outcome(outcomes[0]),
        url=links.ticks(",".join(outcomes)) if number else "",
        leads="these ticks",
    )
