"""What a history breaks: every duplicate, overlap, stale effect and miss, and whose fault it was. Pure.

A finding is *promised away* where the strategy, with the guards that were on, said that it would not happen under
the faults that touched it. One promised finding is a broken promise; the others show that the faults were real.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from aegis_site.soak.catalog import TTL
from aegis_site.soak.history import Fate, History, Start, Stay
from aegis_site.soak.injection import Fault
from aegis_site.soak.plan import FaultKind
from aegis_site.soak.promises import UNWATCHED, overlap_is_promised_away

# Faults that take nothing away for long: no fire time may be missed because of them.
HARMLESS = frozenset({FaultKind.DUPLICATE, FaultKind.BEAT_KILL, FaultKind.RELOAD})


class Broken(StrEnum):
    """What may be found, by the guarantee that speaks of it."""

    NUMBER_TWICE = "I1 a token was given twice or went back"
    DUPLICATE = "G2 second body of one tick"
    OVERLAP = "G3 two bodies under one name at once"
    STALE = "G4 effect after a later holder had started"
    LOST_UPDATE = "G4 lost update"
    MISSED = "G5 fire time without a body"
    UNTOLD = "G5 fire time without a row"
    OPEN = "G5 tick left open"
    UNEXPLAINED = "lease lost or body abandoned"
    ALONE = "body without an execution, or the reverse"
    TAKEOVER = "I10 takeover after a crash later than the bound"
    UNCLOSED = "I12 body entered while its store was down"
    UNDONE = "I14 effect of a run that did not finish, under finish=True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that should not have happened. ``faults``: the kinds that explain it; empty: nothing does, but where
    it is ``starved``: this machine had no CPU time to spare."""

    what: Broken
    alias: str
    schedule: str
    detail: str
    faults: frozenset[FaultKind]
    promised: bool
    starved: bool = False


def findings(history: History) -> list[Finding]:
    """Everything that is wrong in ``history``."""
    checks = (
        _tokens, _duplicates, _overlaps, _stale, _lost_updates, _misses, _untold, _unexplained, _alone, _takeovers,
        _fail_closed, _undone,
    )  # fmt: skip
    return [found for check in checks for found in check(history)]


def _touching(history: History, start: float, end: float, *who: tuple[int, str]) -> frozenset[FaultKind]:
    """The faults that were or had just been when something happened from ``start`` to ``end`` to any of ``who``."""
    return frozenset(
        fault.kind
        for fault in history.faults
        if _near(history, fault, start, end) and (not who or any(fault.touches(pid, alias) for pid, alias in who))
    )


def _near(history: History, fault: Fault, start: float, end: float) -> bool:
    return fault.start <= end and start <= fault.end + history.aftermath


def _tokens(history: History) -> Iterator[Finding]:
    last: dict[str, int] = {}
    for start in sorted(history.starts, key=lambda start: start.started_at):
        if start.token is None:
            continue
        if start.token <= last.get(start.name, 0):
            detail = f"execution {start.execution} got {start.token} after {last[start.name]}"
            yield _broken(Broken.NUMBER_TWICE, start.alias, start.schedule, detail)
        last[start.name] = max(start.token, last.get(start.name, 0))


def _duplicates(history: History) -> Iterator[Finding]:
    seen: dict[tuple[int, int], Stay] = {}
    for stay in history.stays:
        first = seen.setdefault((stay.tick, stay.attempt), stay)
        if first is not stay:
            faults = _touching(history, first.entered, stay.ended)
            detail = f"executions {first.execution} and {stay.execution} of tick {stay.tick}"
            yield Finding(
                what=Broken.DUPLICATE, alias=stay.alias, schedule=stay.schedule, detail=detail, faults=faults,
                promised=history.guarded and stay.alias != "none",
            )  # fmt: skip


def _overlaps(history: History) -> Iterator[Finding]:
    """A body that entered while the one before it under its name, by the journal, was still inside."""
    inside: dict[str, Stay] = {}
    for stay in history.stays:
        before = inside.get(stay.name)
        if before is not None and stay.entered < before.ended:
            faults = _touching(
                history, before.entered, stay.entered, (before.pid, before.alias), (stay.pid, stay.alias)
            )
            yield Finding(
                what=Broken.OVERLAP, alias=stay.alias, schedule=stay.schedule,
                detail=f"execution {stay.execution} entered {before.ended - stay.entered:.2f} s before"
                f" {before.execution} was out",
                faults=faults,
                promised=overlap_is_promised_away(stay.alias, stay.schedule, faults)
                and not _outlived(stay.alias, stay.entered - before.entered),
            )  # fmt: skip
        if before is None or stay.ended > before.ended:
            inside[stay.name] = stay


def _outlived(alias: str, seconds: float) -> bool:
    """Whether a body was inside for longer than its claim, which nobody prolongs: what follows needs no fault."""
    return alias in UNWATCHED and seconds > TTL


def _stale(history: History) -> Iterator[Finding]:
    """An effect whose time lies after the start of a later holder. Both stamps are the database's."""
    starts = defaultdict(list)
    for start in history.starts:
        if start.token is not None:
            starts[start.name].append(start)
    by_execution = {start.execution: start for start in history.starts}
    for effect in history.effects:
        later = [s for s in starts[effect.name] if effect.token is not None and s.token > effect.token]  # type: ignore[operator]
        if any(start.started_at < effect.at for start in later):
            own = by_execution[effect.execution]
            faults = _touching(history, history.boot(own.started_at), history.boot(effect.at), (own.pid, own.alias))
            yield Finding(
                what=Broken.STALE, alias=own.alias, schedule=own.schedule,
                detail=f"execution {effect.execution} with token {effect.token}", faults=faults,
                promised=history.fenced,
            )  # fmt: skip


def _lost_updates(history: History) -> Iterator[Finding]:
    counted = Counter(effect.name for effect in history.effects)
    owner = {start.name: start for start in history.starts}
    for name, number in counted.items():
        if history.counters.get(name) != number:
            own = owner[name]
            yield Finding(
                what=Broken.LOST_UPDATE, alias=own.alias, schedule=own.schedule,
                detail=f"{number} effects, counter at {history.counters.get(name)}", faults=frozenset(),
                promised=history.fenced and own.alias != "none",
            )  # fmt: skip


def _misses(history: History) -> Iterator[Finding]:
    """Fire times that nobody began, and ticks that nobody closed. A miss with a fault near it is explained.

    So is one on a machine without CPU time to spare, but such a run proves less than it says.
    """
    for fate in history.fates:
        if fate.state not in ("closed", "misfired"):
            yield _broken(Broken.OPEN, fate.alias, fate.schedule, f"tick {fate.tick} is {fate.state}")
        elif fate.outcome in ("misfired", "blocked", "revoked"):
            start, end = history.boot(fate.fire_time) - history.period, history.boot(fate.deadline)
            faults = _touching(history, start, end) - HARMLESS
            starved = not faults and history.load.starved(start, end)
            detail = f"tick {fate.tick}: {fate.outcome}, {fate.reason}"
            yield Finding(
                what=Broken.MISSED, alias=fate.alias, schedule=fate.schedule, detail=detail, faults=faults,
                promised=not faults and not starved, starved=starved,
            )  # fmt: skip


def _untold(history: History) -> Iterator[Finding]:
    """Each second between a schedule's first and last fire time has a row, or lies in a row's stretch."""
    by_schedule: dict[str, list[Fate]] = defaultdict(list)
    for fate in history.fates:
        by_schedule[fate.schedule].append(fate)
    step = timedelta(seconds=history.period)
    for schedule, fates in by_schedule.items():
        expected: datetime | None = None
        for fate in sorted(fates, key=lambda fate: fate.fire_time):
            if expected is not None and fate.fire_time > expected:
                detail = f"nothing from {expected} to {fate.fire_time}"
                yield _broken(Broken.UNTOLD, fate.alias, schedule, detail)
            expected = max(expected or fate.fire_time, (fate.through or fate.fire_time) + step)


def _unexplained(history: History) -> Iterator[Finding]:
    for start in history.starts:
        if start.state in ("lost", "abandoned", "failed"):
            end = history.boot(start.ended_at or start.started_at)
            faults = _touching(history, history.boot(start.started_at), end, (start.pid, start.alias))
            # PostgreSQL is under every body: its effects, its heartbeat and its end go there.
            faults |= _touching(history, history.boot(start.started_at), end) & {FaultKind.PG_RESTART}
            detail = f"execution {start.execution} is {start.state}"
            yield Finding(
                what=Broken.UNEXPLAINED, alias=start.alias, schedule=start.schedule, detail=detail, faults=faults,
                promised=not faults and not _outlived(start.alias, end - history.boot(start.started_at)),
            )  # fmt: skip


def _alone(history: History) -> Iterator[Finding]:
    """Every body has an execution, and every executed one a body that was left. The two tell one story.

    Under ``finish=True`` the effect's commit is the end of the run. Where a fault kept its answer back, the body
    raises, the run is executed, and the effect is there.
    """
    known = {start.execution: start for start in history.starts}
    told = {stay.execution: stay for stay in history.stays}
    for stay in history.stays:
        if stay.execution not in known:
            yield _broken(Broken.ALONE, stay.alias, stay.schedule, f"body of execution {stay.execution}")
    for start in history.starts:
        how = told[start.execution].how if start.execution in told else "never entered"
        if how == "raised" and _committed_unheard(history, start, told[start.execution]):
            continue
        if start.state == "executed" and how in ("never entered", "lost", "raised"):
            yield _broken(Broken.ALONE, start.alias, start.schedule, f"execution {start.execution}: {how}")


def _committed_unheard(history: History, start: Start, stay: Stay) -> bool:
    if "-finish-" not in start.schedule or all(effect.execution != start.execution for effect in history.effects):
        return False
    faults = _touching(history, stay.entered, stay.ended, (start.pid, start.alias))
    return bool(faults & {FaultKind.PARTITION, FaultKind.PG_RESTART})


def _takeovers(history: History) -> Iterator[Finding]:
    """After a kill the name is taken again within the bound, unless another fault or a busy machine is in the way."""
    for stay, delay in takeovers(history):
        others = [f for f in history.faults if not f.killed and _near(history, f, stay.ended, stay.ended + delay)]
        if delay > history.aftermath and not others:
            starved = history.load.starved(stay.ended, stay.ended + delay)
            yield Finding(
                what=Broken.TAKEOVER, alias=stay.alias, schedule=stay.schedule,
                detail=f"{delay:.1f} s after execution {stay.execution} was killed",
                faults=frozenset(), promised=not starved, starved=starved,
            )  # fmt: skip


def takeovers(history: History) -> list[tuple[Stay, float]]:
    """Bodies cut short by a kill, with the seconds until the next body under their name entered."""
    by_name: dict[str, list[Stay]] = defaultdict(list)
    for stay in history.stays:
        by_name[stay.name].append(stay)
    found = []
    for stays in by_name.values():
        for stay, following in pairwise(stays):
            if stay.how == "killed" and stay.alias != "none":
                found.append((stay, following.entered - stay.ended))
    return found


def _fail_closed(history: History) -> Iterator[Finding]:
    """While the Redis of the locks is down nobody enters under it, but for those let in just before."""
    for fault in history.faults:
        if fault.kind is not FaultKind.REDIS_RESTART or "redis" not in fault.aliases:
            continue
        for stay in history.stays:
            if stay.alias == "redis" and fault.start + 0.4 < stay.entered < fault.end - 0.1:
                detail = f"execution {stay.execution}, {stay.entered - fault.start:.2f} s after the store had gone"
                yield _broken(Broken.UNCLOSED, stay.alias, stay.schedule, detail)


def _undone(history: History) -> Iterator[Finding]:
    """With ``finish=True`` effect and outcome share one fate: an effect if and only if the run is executed."""
    if not history.fenced:
        return
    marks = Counter(effect.execution for effect in history.effects)
    for start in history.starts:
        if "-finish-" in start.schedule and marks[start.execution] != (start.state == "executed"):
            detail = f"execution {start.execution} is {start.state} with {marks[start.execution]} effects"
            yield _broken(Broken.UNDONE, start.alias, start.schedule, detail)


def _broken(what: Broken, alias: str, schedule: str, detail: str) -> Finding:
    """A finding that no fault excuses."""
    return Finding(
        what=what, alias=alias, schedule=schedule, detail=detail, faults=frozenset(), promised=alias != "none"
    )


def void(faults: Iterable[Fault]) -> list[Fault]:
    """Faults that left no trace: a run in which nothing happened proves nothing."""
    return [fault for fault in faults if not fault.proof]
