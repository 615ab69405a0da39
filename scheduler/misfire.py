"""Misfire: what becomes of fire times that passed while nobody stored them. Pure: time is an argument.

A fire time is *on time* while ``now - fire_time <= grace`` and fires whatever the policy says. An older one
is *missed*, and the policy decides:

- ``skip``: it is skipped;
- ``fire_once``: the latest missed one inside the catch-up window fires, once, under its own fire time,
  unless one that is on time fires now anyway; the others are skipped;
- ``fire_all``: those inside the catch-up window fire, oldest first; older ones are skipped.

What is skipped becomes one stretch with first, last and count: an outage of a week under a schedule of
every second is one row in the ledger, not 600,000. Nothing is left out: every fire time in (after, now] is
in exactly one of ``ticks`` and ``skipped``, except those that a limit leaves to the next pass, which
``next_fire_at`` then names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from scheduler.recurrence import Stretch

Policy = Literal["skip", "fire_once", "fire_all"]
POLICIES: tuple[Policy, ...] = ("skip", "fire_once", "fire_all")

# Cron's missed fire times are counted one by one; beyond this the stretch says "more".
COUNT_CAP = 10_000

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fire time that fires. ``late``: it is caught up, so its deadline counts from now."""

    fire_time: datetime
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedStretch:
    """Neighbouring fire times that do not fire: from ``first`` through ``through``, both among them.

    ``count`` is exact, or a lower bound where ``more`` is set.
    """

    first: datetime
    through: datetime
    count: int
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Fire times rising; ``next_fire_at`` is the first one not handled here, None when there is none."""

    ticks: tuple[Planned, ...]
    skipped: tuple[SkippedStretch, ...]
    next_fire_at: datetime | None


class FireTimes(Protocol):
    """What the policy asks of a recurrence."""

    def next_after(self, t: datetime) -> datetime | None: ...

    def fire_times(self, after: datetime, until: datetime, limit: int) -> Stretch: ...

    def last_in(self, after: datetime, until: datetime) -> datetime | None: ...

    def count_in(self, after: datetime, until: datetime, cap: int) -> tuple[int, bool]: ...


@dataclass(frozen=True, slots=True)
class Named:
    """A recurrence and one fire time that was named before its rules changed. The stored name wins.

    Timeline: a beat stores 01:30 UTC as the next fire time; the rules of the zone are updated, by which it is
    00:30 UTC; at 01:30 a beat with the new rules finds no fire time that has just come due, and tomorrow's is the
    next: without this, today's would be lost without a trace.
    """

    recurrence: FireTimes
    at: datetime

    def next_after(self, t: datetime) -> datetime | None:
        return self.at if t < self.at else self.recurrence.next_after(t)

    def fire_times(self, after: datetime, until: datetime, limit: int) -> Stretch:
        if not after < self.at <= until:
            return self.recurrence.fire_times(max(after, self.at), until, limit)
        later = self.recurrence.fire_times(self.at, until, limit)
        times = (self.at, *later.times)
        return Stretch(times=times[:limit], more=later.more or len(times) > limit)

    def last_in(self, after: datetime, until: datetime) -> datetime | None:
        later = self.recurrence.last_in(max(after, self.at), until)
        return later or (self.at if after < self.at <= until else None)

    def count_in(self, after: datetime, until: datetime, cap: int) -> tuple[int, bool]:
        count, more = self.recurrence.count_in(max(after, self.at), until, cap)
        return count + (after < self.at <= until), more


def decide(
    recurrence: FireTimes,
    *,
    after: datetime,
    now: datetime,
    policy: str,
    grace: float,
    catch_up_window: float,
    limit: int = 1000,
    named: datetime | None = None,
) -> Decision:
    """Handle the fire times in (after, now].

    ``after`` is the last fire time already handled, or the instant of activation: nothing before it is ever
    looked at. ``named`` is a fire time that was stored as the next one; after ``after`` it counts even if the
    recurrence no longer names it (``Named``). ``grace`` and ``catch_up_window`` are seconds before ``now``. At
    most ``limit`` ticks are planned; the rest is left for the next pass. Where ``after`` lies ahead of ``now``
    (a clock set back) nothing is planned and nothing before ``after`` is named again. Raises ``ValueError`` for
    an unknown policy, a negative time and a limit below 1.
    """
    _check(policy, grace, catch_up_window, limit)
    after, now = after.astimezone(UTC), now.astimezone(UTC)
    if named is not None and after < named and recurrence.next_after(named - _TICK) != named:
        recurrence = Named(recurrence, named)
    if after >= now:
        return Decision(ticks=(), skipped=(), next_fire_at=recurrence.next_after(after))
    on_time_from = max(after, _before(now, grace))
    caught_up_from = max(after, _before(now, catch_up_window))
    if policy == "fire_all":
        fire_from = min(on_time_from, caught_up_from)
    elif policy == "fire_once" and not _any(recurrence, on_time_from, now):
        last = recurrence.last_in(caught_up_from, on_time_from)
        fire_from = on_time_from if last is None else last - _TICK
    else:
        fire_from = on_time_from
    return _split(recurrence, after, fire_from, on_time_from, now, limit)


def _split(
    recurrence: FireTimes,
    after: datetime,
    fire_from: datetime,
    on_time_from: datetime,
    now: datetime,
    limit: int,
) -> Decision:
    """Skip (after, fire_from], fire (fire_from, now]; what lies after ``on_time_from`` is not late."""
    due = recurrence.fire_times(fire_from, now, limit)
    return Decision(
        ticks=tuple(Planned(fire_time=f, late=f <= on_time_from) for f in due.times),
        skipped=_stretch(recurrence, after, fire_from),
        next_fire_at=recurrence.next_after(due.times[-1] if due.more else now),
    )


def _stretch(recurrence: FireTimes, after: datetime, until: datetime) -> tuple[SkippedStretch, ...]:
    """The fire times in (after, until] as one stretch; empty where there is none."""
    first = recurrence.next_after(after)
    if first is None or first > until:
        return ()
    through = recurrence.last_in(after, until)
    assert through is not None
    count, more = recurrence.count_in(after, until, COUNT_CAP)
    return (SkippedStretch(first=first, through=through, count=count, more=more),)


def _any(recurrence: FireTimes, after: datetime, until: datetime) -> bool:
    first = recurrence.next_after(after)
    return first is not None and first <= until


def _before(now: datetime, seconds: float) -> datetime:
    """Just before ``now - seconds``, so that a fire time of exactly that age lies after it."""
    try:
        return now - timedelta(seconds=seconds) - _TICK
    except OverflowError:  # longer than the calendar: nothing is too old
        return datetime.min.replace(tzinfo=UTC)


def _check(policy: str, grace: float, catch_up_window: float, limit: int) -> None:
    if policy not in POLICIES:
        raise ValueError(f"misfire policy must be one of {', '.join(POLICIES)}; it is {policy!r}")
    for name, value in (("grace", grace), ("catch_up_window", catch_up_window)):
        if not value >= 0:
            raise ValueError(f"{name} must be 0 seconds or more; it is {value!r}")
    if limit < 1:
        raise ValueError(f"limit must be 1 or more; it is {limit!r}")
