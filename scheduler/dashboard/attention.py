"""What needs a human, the worst first. Pure: it is told what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.charts.scale import duration_words
from scheduler.dashboard.figures import Figures, Tally
from scheduler.dashboard.header import Header
from scheduler.dashboard.headroom import Headroom
from scheduler.dashboard.links import Links
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP
from scheduler.dashboard.upcoming import Running
from scheduler.states import TickOutcome

# Sentences shown of each kind; how many more there are is said.
MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One sentence and where to look. ``tone`` is bad or warn: a colour beside the words."""

    what: str
    text: str
    tone: str
    url: str = ""
    link: str = "Open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the list is made from. ``silence`` (seconds): a body unheard of for longer has lost its process."""

    figures: Figures
    header: Header
    silence: float
    running: Sequence[Running] = ()
    tight: Sequence[Headroom] = ()
    links: Links = field(default_factory=Links)


Kind = Callable[[Found], Iterator[Item]]


def attention(found: Found) -> list[Item]:
    """Proven overlaps, duplicates, nobody there, missed, badly ended, blocked, lost processes, tight leases, mixed
    versions."""
    kinds: tuple[Kind, ...] = (_collided, _nobody, _missed, _ended_badly, _blocked, _orphans, _tight, _versions)
    return [item for kind in kinds for item in _some(list(kind(found)))]


def _some(items: list[Item]) -> list[Item]:
    more = len(items) - MOST
    if more <= 0:
        return items
    last = items[MOST - 1]
    return [*items[: MOST - 1], Item(what="", text=f"... and {more + 1} more like these.", tone=last.tone)]


def _collided(found: Found) -> Iterator[Item]:
    tallies = sorted(found.figures.schedules.items(), key=lambda item: -item[1].too_many[OVERLAP])
    for word, name in ((OVERLAP, "proven overlap"), (DUPLICATE, "duplicate")):
        for (pk, schedule), tally in tallies:
            if number := tally.too_many[word]:
                yield Item(
                    what=schedule,
                    text=f"{number:,} {name}{'' if number == 1 else 's'}, {_strategies(tally)}.",
                    tone="bad",
                    url=found.links.around(tally.latest, pk) if tally.latest else "",
                    link="Show the latest",
                )


def _strategies(tally: Tally) -> str:
    """Those of all its ticks: one that was changed may be the cause or the remedy."""
    names = sorted(tally.strategies)
    return f"strategy {names[0]}" if len(names) == 1 else f"strategies in this window: {', '.join(names)}"


def _nobody(found: Found) -> Iterator[Item]:
    head, workers = found.header, found.links.workers
    if not head.beats:
        text = f"silent for {head.beat_age}" if head.beat_heard_at else "never heard"
        yield Item(what="Beat", text=f"{text}. No ticks are made until one runs.", tone="bad", url=workers)
    if not head.workers:
        yield Item(what="Workers", text="none is alive. Nobody takes what is due.", tone="bad", url=workers)


def _missed(found: Found) -> Iterator[Item]:
    for key, tally in found.figures.schedules.items():
        if tally.missed:
            text = f"{tally.missed:,} fire time{'' if tally.missed == 1 else 's'} missed."
            yield Item(what=key[1], text=text, tone="warn", url=found.links.ticks(TickOutcome.MISFIRED, key))


def _ended_badly(found: Found) -> Iterator[Item]:
    """One sentence for each schedule and each bad end: they lead to different rows."""
    for key, tally in found.figures.schedules.items():
        for outcome in (TickOutcome.FAILED, TickOutcome.LOST, TickOutcome.ABANDONED):
            if number := tally.ended[outcome]:
                text = f"{number:,} run{'' if number == 1 else 's'} ended as {outcome.label.lower()}."
                yield Item(what=key[1], text=text, tone="warn", url=found.links.ticks(outcome, key))


def _blocked(found: Found) -> Iterator[Item]:
    for key, tally in found.figures.schedules.items():
        if number := tally.ended[TickOutcome.BLOCKED]:
            ticks = f"{number:,} tick{'' if number == 1 else 's'}"
            text = f"{ticks} blocked: the lock store did not answer, or a guard was open."
            yield Item(what=key[1], text=text, tone="warn", url=found.links.ticks(TickOutcome.BLOCKED, key))


def _orphans(found: Found) -> Iterator[Item]:
    for one in found.running:
        if one.silent > found.silence:
            text = (
                f"execution {one.id} runs, but its process {one.worker or 'without a name'} has not been heard of "
                f"for {duration_words(one.silent)}: its lease holds the name until it ends."
            )
            yield Item(what=one.schedule, text=text, tone="warn", url=found.links.execution(one.id), link="Show")


def _tight(found: Found) -> Iterator[Item]:
    for one in found.tight:
        text = (
            f"its lease of {one.lease:g} s is not renewed, and 19 of 20 runs end within {one.p95:.1f} s: "
            f"{one.share:.0%} left. Raise the TTL."
        )
        yield Item(what=one.schedule, text=text, tone="warn", url=found.links.schedule(one.schedule_id))


def _versions(found: Found) -> Iterator[Item]:
    if len(found.header.versions) > 1:
        text = f"more than one is running: {', '.join(found.header.versions)}. Restart the older processes."
        yield Item(what="Versions", text=text, tone="warn", url=found.links.workers)
