"""Leases: do TTL, window, time limit, period and grace fit together, schedule by schedule? Pure, but for ``ask``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from locks import Finding, InvalidLockBackend, lock_backends
from locks.findings import fail, ok, warn
from scheduler.conf import conf
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.fleet import Fleet
from scheduler.doctor.report import named

TOPIC = "leases"
AFTER_THE_LEASE = 4.0
"""Seconds from the end of a dead holder's lease to the next start: a pass, another publication, a delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What one alias of LOCKS promises. Times are seconds."""

    alias: str
    exclusive: bool = True
    renewable: bool = True
    trust_window: bool = True
    session_bound: bool = False
    in_database: bool = False
    bounded: bool = True
    extra: float = 0.0  # of the takeover bound, beyond the TTL
    longest_exchange: float | None = None

    def takeover(self, ttl: float) -> float | None:
        """When a dead holder's name is free, as long as its machine lives; ``None``: no bound."""
        if self.session_bound:
            return 0.0
        return ttl + self.extra if self.bounded else None


def ask() -> dict[str, Strategy]:
    """The aliases of LOCKS that can be used; the others are told by the system checks. No store is asked."""
    known = {}
    for alias in lock_backends.aliases():
        try:
            backend = lock_backends[alias]
        except InvalidLockBackend:
            continue
        bound = backend.takeover_bound
        known[alias] = Strategy(
            alias=alias,
            exclusive=backend.exclusive,
            renewable=backend.renewable,
            trust_window=backend.trust_window,
            session_bound=backend.session_bound,
            in_database=hasattr(backend, "using"),
            bounded=bound is not None,
            extra=0.0 if bound is None else max(0.0, bound - backend.ttl),
            longest_exchange=backend.longest_exchange,
        )
    return known


@dataclass(frozen=True, slots=True)
class Guarded:
    """One schedule with the strategy of its lock name."""

    row: Scheduled
    by: Strategy

    @property
    def ttl(self) -> float:
        return self.row.ttl


def judge(scheduled: Sequence[Scheduled], strategies: Mapping[str, Strategy], fleet: Fleet) -> Iterator[Finding]:
    """What does not fit, one line a kind with the worst case in figures; one good line for the rest."""
    rows = [Guarded(row, strategies[row.alias]) for row in scheduled if row.alias in strategies]
    guarded = [one for one in rows if one.by.exclusive]
    found = [
        *_windows(guarded),
        *_kill(guarded, fleet),
        *_patience(guarded),
        *_periods(guarded),
        *_graces(guarded),
        *_published_again(rows),
    ]
    yield from found
    if not found:
        yield ok(TOPIC, f"TTL, time limit, period and grace of {len(rows)} schedules fit together")


def _windows(guarded: Sequence[Guarded]) -> Iterator[Finding]:
    """A claim is not renewed: a body that outlives its window is only found out afterwards."""
    claims = [one for one in guarded if not one.by.renewable]
    over = [one for one in claims if one.row.time_limit and one.row.time_limit >= one.ttl]
    if over:
        worst = max(over, key=lambda one: (one.row.time_limit or 0) - one.ttl)
        yield fail(
            TOPIC, f"{_names(over)}: the window is not renewed and shorter than the hard time limit "
            f"({worst.row.name}: {worst.ttl:g} s, limit {worst.row.time_limit:g} s): bodies may overlap",
            "Raise the TTL above the task's time_limit, or lower the limit.",
        )  # fmt: skip
    unlimited = [one for one in claims if not one.row.time_limit]
    if unlimited:
        worst = max(unlimited, key=lambda one: (one.row.observed or 0.0) - one.ttl)
        seen = f"99 of 100 runs ended within {worst.row.observed:.1f} s" if worst.row.observed else "no run seen yet"
        yield warn(
            TOPIC, f"{_names(unlimited)}: the window is not renewed and the task has no hard time limit "
            f"({worst.row.name}: window {worst.ttl:g} s, {seen})",
            "Give the task a time_limit below the window.",
        )  # fmt: skip


def _kill(guarded: Sequence[Guarded], fleet: Fleet) -> Iterator[Finding]:
    kills = [one for one in guarded if one.row.on_lost == "kill"]
    endless = [one for one in kills if not one.by.trust_window]
    if endless:
        yield fail(
            TOPIC, f"{_names(endless)}: on_lost='kill' and a strategy whose leases end by no clock: no run begins",
            "Choose another strategy for the lock name, or on_lost='interrupt'.",
        )  # fmt: skip
    others = [w for w in fleet.workers if w.pool and w.pool != "prefork" and _reads_one_of(w.queues, kills)]
    if others:
        pools = named(f"{worker.name} ({worker.pool})" for worker in others)
        yield fail(
            TOPIC, f"{_names(kills)}: on_lost='kill', and {pools} cannot kill one body: runs there are blocked",
            "Send these tasks to a queue of prefork workers, or choose on_lost='interrupt'.",
        )  # fmt: skip


def _reads_one_of(queues: tuple[str, ...] | None, rows: Sequence[Guarded]) -> bool:
    return queues is not None and any(one.row.queue in queues or one.row.broadcast for one in rows)


def _patience(guarded: Sequence[Guarded]) -> Iterator[Finding]:
    short = [one for one in guarded if one.by.longest_exchange and one.ttl <= one.by.longest_exchange]
    if short:
        worst = min(short, key=lambda one: one.ttl)
        yield warn(
            TOPIC, f"{_names(short)}: the TTL is not above the store's time-out ({worst.row.name}: {worst.ttl:g} s, "
            f"an answer may take {worst.by.longest_exchange:g} s): one slow answer loses the lease",
            "Raise the TTL to three times the time-out, or lower the time-out.",
        )  # fmt: skip


def _periods(guarded: Sequence[Guarded]) -> Iterator[Finding]:
    costs = [(one, _ticks_lost(one)) for one in guarded]
    costly = [(one, ticks) for one, ticks in costs if ticks > 1]
    if costly:
        worst, ticks = max(costly, key=lambda pair: pair[1])
        yield warn(
            TOPIC, f"{_names([one for one, _ in costly])}: a dead holder's lease outlives the period "
            f"({worst.row.name}: TTL {worst.ttl:g} s, every {worst.row.period:g} s): a crash may cost {ticks} ticks",
            "Lower the TTL, or accept it.",
        )  # fmt: skip


def _ticks_lost(one: Guarded) -> int:
    """Fire times within the time for which a dead holder keeps the name. One at most is the crash itself."""
    takeover = one.by.takeover(one.ttl)
    return math.ceil(takeover / one.row.period) if takeover and one.row.period else 0


def _graces(guarded: Sequence[Guarded]) -> Iterator[Finding]:
    """A tick that is refused by a dead holder's lease is tried again until its grace is over."""
    short = [one for one in guarded if one.row.grace < (one.by.takeover(one.ttl) or 0.0) + AFTER_THE_LEASE]
    if short:
        worst = max(short, key=lambda one: (one.by.takeover(one.ttl) or 0.0) - one.row.grace)
        need = (worst.by.takeover(worst.ttl) or 0.0) + AFTER_THE_LEASE
        yield warn(
            TOPIC, f"{_names(short)}: the grace ends before a dead holder's name is free ({worst.row.name}: grace "
            f"{worst.row.grace:g} s, up to {need:g} s): after a crash the next tick is missed",
            "Raise the grace above that, or lower the TTL.",
        )  # fmt: skip


def _published_again(rows: Sequence[Guarded]) -> Iterator[Finding]:
    """A message that got lost is published again after REDISPATCH_GRACE, if the tick's own grace lets it."""
    again = float(conf("REDISPATCH_GRACE"))
    never = [one for one in rows if one.row.guarded and one.row.grace <= again]
    if never:
        yield warn(
            TOPIC, f"{_names(never)}: the grace is not above REDISPATCH_GRACE, {again:g} s: a lost message is never "
            "sent again",
            "Raise the grace, or lower AEGIS['REDISPATCH_GRACE'].",
        )  # fmt: skip


def _names(rows: Sequence[Guarded]) -> str:
    return named(one.row.name for one in rows)
