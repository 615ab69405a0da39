"""Collisions: duplicates and overlaps, computed from audit rows by one definition. Pure.

``scheduler.bodies`` says what is known of a body: an outer interval and a certain one.

**Overlap**: an execution that began while another under the same lock name was inside adds one; n at once
are n - 1, not pairs. It is *proven* where certain intervals meet, else *possible* where outer ones do.
Counted over a whole set this is n less the number of groups that hang together, so it can only grow as
intervals do: whatever the true bodies were, proven <= true overlaps <= proven + possible.

**Duplicate**: a second body begun for one (tick, attempt), or an earlier attempt that turned out to have
gone on after a later one started. An execution whose body was not entered counts for neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from scheduler.bodies import ABANDONED, LOST, NEVER, Body
from scheduler.intervals import Groups, Interval, arrivals, count_arrivals_to_company, shared_stretches

__all__ = [
    "AuditCounts",
    "Body",
    "Cause",
    "Duplicate",
    "Overlap",
    "Overlaps",
    "Shared",
    "count",
    "duplicates",
    "ledger_duplicates",
    "ledger_overlaps",
    "overlaps",
    "shared",
]


class Cause(StrEnum):
    """Why exclusivity broke, as far as the rows tell."""

    NO_LOCK = "no lock"
    TWO_STRATEGIES = "two strategies under one lock name"
    FORCED = "a lease was released by force"
    LEASE_OUTLIVED = "the lease ended before the body did"
    TAKEN_OVER = "taken over while its worker was silent"
    GUARD_OFF = "tick guard off"
    WENT_ON = "an earlier attempt went on"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """``execution_id`` began while ``others`` were inside; [start, end) is when it was not alone."""

    execution_id: int
    others: tuple[int, ...]
    lock_name: str
    start: datetime
    end: datetime | None
    proven: bool
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlaps:
    """Overlaps by certainty; the two are never added up without saying so."""

    proven: tuple[Overlap, ...]
    possible: tuple[Overlap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """``execution_id`` is a body too many for its tick; ``beside`` is the one it repeats or outlived."""

    execution_id: int
    beside: int
    tick_id: int
    attempt: int
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A stretch of an execution in which it was not alone; ``end`` is None while that lasts."""

    start: datetime
    end: datetime | None
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCounts:
    """Collisions as the audit sees them."""

    duplicates: int
    proven: int
    possible: int


def overlaps(bodies: Iterable[Body], *, unlocked: Collection[str] = ("none",)) -> Overlaps:
    """Every execution that began while another was inside, in order of starting, by certainty.

    An execution adds at most one in all. A possible one is listed only where it hangs together what proven
    ones do not: the lengths are the counts of the definition. ``unlocked`` are the aliases that exclude
    nothing; they only serve to name the cause. O(n log n) and the size of the answer.
    """
    known = {body.execution_id: body for body in bodies if body.began}
    groups = Groups()
    proven = _met(known, [body.certain for body in known.values()], groups, unlocked, proven=True)
    possible = _met(known, [body.outer for body in known.values()], groups, unlocked, proven=False)
    return Overlaps(proven=tuple(proven), possible=tuple(possible))


def _met(
    known: dict[int, Body],
    intervals: list[Interval],
    groups: Groups,
    unlocked: Collection[str],
    *,
    proven: bool,
) -> list[Overlap]:
    found = []
    for stay, inside in arrivals(intervals):
        # Whoever is inside together hangs together already, so that joining one of them joins all.
        if not inside or not groups.join(stay.id, inside[0].id):
            continue
        body, others = known[_number(stay)], [known[_number(other)] for other in inside]
        end = min(stay.end, max(other.end for other in inside))
        found.append(
            Overlap(
                execution_id=body.execution_id,
                others=tuple(other.execution_id for other in others),
                lock_name=stay.name,
                start=stay.start,
                end=None if end == NEVER else end,
                proven=proven,
                cause=_cause(body, others, unlocked),
            )
        )
    return found


def _number(interval: Interval) -> int:
    assert isinstance(interval.id, int)
    return interval.id


def _cause(body: Body, others: list[Body], unlocked: Collection[str]) -> Cause:
    """The lock's story first, then what became of those that were inside, then of the newcomer."""
    aliases = {body.lock_alias, *(other.lock_alias for other in others)}
    if aliases <= set(unlocked):
        return Cause.NO_LOCK
    if len(aliases) > 1:
        return Cause.TWO_STRATEGIES
    if any(other.forced for other in others):
        return Cause.FORCED
    for states in ({other.state for other in others}, {body.state}):
        if LOST in states:
            return Cause.LEASE_OUTLIVED
        if ABANDONED in states:
            return Cause.TAKEN_OVER
    return Cause.UNKNOWN


def duplicates(bodies: Iterable[Body]) -> list[Duplicate]:
    """Bodies too many: per (tick, attempt) those begun after the first, and earlier attempts that went on."""
    by_tick: dict[int, list[Body]] = defaultdict(list)
    for body in sorted((b for b in bodies if b.began), key=lambda b: (b.started_at, b.execution_id)):
        by_tick[body.tick_id].append(body)
    return [found for begun in by_tick.values() for found in (*_repeated(begun), *_went_on(begun))]


def _repeated(begun: list[Body]) -> Iterator[Duplicate]:
    first: dict[int, Body] = {}
    for body in begun:
        original = first.setdefault(body.attempt, body)
        if original is not body:
            yield _duplicate(body, original, Cause.UNKNOWN if body.guarded else Cause.GUARD_OFF)


def _went_on(begun: list[Body]) -> Iterator[Duplicate]:
    for body in begun:
        successor = next((later for later in begun if later.attempt > body.attempt), None)
        if successor and body.returned_at and body.returned_at > successor.started_at:
            yield _duplicate(body, successor, Cause.WENT_ON)


def _duplicate(body: Body, beside: Body, cause: Cause) -> Duplicate:
    return Duplicate(
        execution_id=body.execution_id,
        beside=beside.execution_id,
        tick_id=body.tick_id,
        attempt=body.attempt,
        cause=cause,
    )


def shared(bodies: Iterable[Body]) -> dict[int, tuple[Shared, ...]]:
    """For each execution that met another, when: for drawing. A proven stretch hides a possible one."""
    known = [body for body in bodies if body.began]
    certain = shared_stretches(body.certain for body in known)
    outer = shared_stretches(body.outer for body in known)
    found = {}
    for number, stretches in outer.items():
        assert isinstance(number, int)
        proven = certain.get(number, [])
        unsure = [s for s in stretches if not any(s[0] < end and start < s[1] for start, end in proven)]
        rows = [(start, end, True) for start, end in proven] + [(start, end, False) for start, end in unsure]
        found[number] = tuple(
            Shared(start=start, end=None if end == NEVER else end, proven=sure) for start, end, sure in sorted(rows)
        )
    return found


def count(bodies: Iterable[Body]) -> AuditCounts:
    """The three numbers of the audit over these bodies."""
    known = list(bodies)
    found = overlaps(known)
    return AuditCounts(duplicates=len(duplicates(known)), proven=len(found.proven), possible=len(found.possible))


def ledger_overlaps(stays: Iterable[tuple[str, datetime, datetime]]) -> int:
    """Overlaps among the effects that bodies wrote themselves: (lock name, first stamp, last stamp)."""
    return count_arrivals_to_company(stays)


def ledger_duplicates(keys: Iterable[Hashable]) -> int:
    """Effects too many: every key after its first appearance, the key being what must happen once."""
    return sum(number - 1 for number in Counter(keys).values())
