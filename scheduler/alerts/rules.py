"""The rules: what is looked for, from which number on, and what is said of it. Each asks a bounded question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from django.db import connection
from django.db.models import Q

from scheduler import held
from scheduler.charts import Window
from scheduler.charts.scale import duration_words
from scheduler.collisions import duplicates, overlaps
from scheduler.conf import conf
from scheduler.dashboard import headroom, rows
from scheduler.dashboard.latest import p95_of
from scheduler.models import Execution, Instance, LockRelease, Schedule, Tick
from scheduler.notes import starved
from scheduler.starvation import IN_A_ROW
from scheduler.states import ExecutionState, TickOutcome, TickState

# Events count for this long: an alert is closed when none happened within it.
WINDOW = timedelta(minutes=15)
# Rows of one kind that are looked at, and subjects of one rule.
MOST = 1_000
# Ticks of a schedule that are looked back on.
RUNS_BACK = 100
# No body is inside too long before this.
LONG = timedelta(minutes=1)
# Ticks that an operator's switch closed: nobody wanted them (the reasons of ``statements.dispatch.SWITCHED_OFF``).
_UNWANTED = Q(reason__in=("deleted", "disabled", "paused")) | Q(reason__startswith="paused: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One condition that holds now. ``marks`` are its events by number; None: it has none.

    ``weights`` says for how many each event stands, in the order of ``marks``; empty: each for one.
    """

    subject: str
    message: str
    schedule_id: int | None = None
    execution_id: int | None = None
    marks: tuple[int, ...] | None = None
    weights: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``find(now, threshold)`` yields what holds. ``unit`` says what the threshold counts; empty: it has none."""

    key: str
    title: str
    find: Callable[[datetime, float], Iterable[Seen]]
    threshold: float = 1
    unit: str = ""


def _events(
    found: Iterable[tuple[str, int | None, int]],
    threshold: float,
    words: str,
    weights: Mapping[int, int] | None = None,
) -> Iterator[Seen]:
    """Group (subject, schedule id, event) by subject; those with at least ``threshold`` events.

    ``weights``: event -> for how many it stands, else one.
    """
    groups: dict[str, tuple[int | None, list[int]]] = {}
    for subject, schedule_id, number in found:
        groups.setdefault(subject, (schedule_id, []))[1].append(number)
    for subject, (schedule_id, numbers) in groups.items():
        marks = tuple(sorted(numbers))
        each = tuple((weights or {}).get(number, 1) for number in marks)
        if sum(each) >= threshold:
            said = f"{sum(each):,} {words} within {WINDOW.seconds // 60} minutes."
            yield Seen(subject=subject, message=said, schedule_id=schedule_id, marks=marks, weights=each)


def _overlap(now: datetime, threshold: float) -> Iterator[Seen]:
    bodies, _ = rows.bodies_in(Window(start=now - WINDOW, end=now))
    met = overlaps(bodies, unlocked=rows.unlocked_aliases())
    recent = [one for one in (*met.proven, *met.possible) if one.start >= now - WINDOW]
    yield from _of_executions(recent, [one.lock_name for one in recent], threshold, "overlaps, proven or possible,")


def _duplicate(now: datetime, threshold: float) -> Iterator[Seen]:
    bodies, _ = rows.bodies_in(Window(start=now - WINDOW, end=now))
    names = {body.execution_id: body.lock_name for body in bodies if body.started_at >= now - WINDOW}
    found = [one for one in duplicates(bodies) if one.execution_id in names]
    yield from _of_executions(found, [names[one.execution_id] for one in found], threshold, "bodies too many")


def _of_executions(found: Iterable[Any], names: list[str], threshold: float, words: str) -> Iterator[Seen]:
    pairs = [(name, None, one.execution_id) for one, name in zip(found, names, strict=True)]
    for seen in _events(pairs, threshold, words):
        assert seen.marks
        yield Seen(subject=seen.subject, message=seen.message, execution_id=seen.marks[-1], marks=seen.marks)


def _missed(now: datetime, threshold: float) -> Iterator[Seen]:
    """By when it was stored that they were missed: a stretch has the instant of its first, which may be hours ago."""
    late = Tick.objects.filter(~_UNWANTED, state=TickState.MISFIRED, closed_at__gte=now - WINDOW).order_by(
        "-closed_at"
    )
    found = late.values_list("schedule_name", "schedule_id", "id", "missed_count")[:MOST]
    weights = {number: max(count, 1) for _, _, number, count in found}  # 0: one, or it is not known how many
    yield from _events([row[:3] for row in found], threshold, "fire times missed", weights)


def _beat_silent(now: datetime, threshold: float) -> Iterator[Seen]:
    beats = Instance.objects.filter(kind=Instance.Kind.BEAT).order_by("-heartbeat_at")
    heard = beats.values_list("heartbeat_at", flat=True).first()
    if not Schedule.objects.filter(enabled=True).exists():
        return
    if heard is None:
        yield Seen(subject="beat", message="No beat was ever heard: no ticks are made.")
    elif (now - heard).total_seconds() > threshold:
        silent = (now - heard).total_seconds()
        yield Seen(subject="beat", message=f"No beat was heard for {silent:.0f} s: no ticks are made.")


_BLOCKED = """
SELECT lock_alias, NULL::int, id FROM aegis_scheduler_execution
WHERE recorded_at >= %(since)s AND state = 'blocked' ORDER BY recorded_at DESC LIMIT %(most)s
"""


def _blocked(now: datetime, threshold: float) -> Iterator[Seen]:
    with connection.cursor() as cursor:
        cursor.execute(_BLOCKED, {"since": now - WINDOW, "most": MOST})
        found = cursor.fetchall()
    yield from _events(
        found, threshold, "executions blocked: the store of this strategy did not answer, or a guard was open"
    )


def _orphan(now: datetime, threshold: float) -> Iterator[Seen]:
    shown = held.locks()
    for one in shown.held:
        if one.state == held.ORPHAN:
            execution_id = one.execution.pk if one.execution else None
            yield Seen(subject=one.info.name, message=f"Held by nobody: {one.why}.", execution_id=execution_id)
    if shown.unread:
        raise OSError("; ".join(f"{one.alias}: {one.why}" for one in shown.unread))


def _headroom(now: datetime, threshold: float) -> Iterator[Seen]:
    for one in headroom.tight(threshold / 100):
        said = f"Lease {one.lease:g} s, 19 of 20 runs within {one.p95:.1f} s: {one.share:.0%} left."
        yield Seen(subject=one.schedule, message=said, schedule_id=one.schedule_id)


def _clock(now: datetime, threshold: float) -> Iterator[Seen]:
    alive = timedelta(seconds=max(conf("SILENCE_GRACE"), 3 * conf("HEARTBEAT")))
    here = Instance.objects.filter(stopped_at=None, heartbeat_at__gte=now - alive, clock_offset__isnull=False)
    for one in here[:MOST]:
        certain = abs(one.clock_offset or 0) - (one.clock_error or 0)
        if certain > threshold:
            yield Seen(subject=str(one), message=f"Its clock is {one.clock_offset:+.1f} s off the database's.")


def _never(now: datetime, threshold: float) -> Iterator[Seen]:
    mute = Q(broken_reason="", exhausted=True, once_at=None) & (Q(end_at=None) | Q(end_at__gt=now))
    found = Schedule.objects.filter(~Q(broken_reason="") | mute, enabled=True)
    for pk, name, reason in found.values_list("pk", "name", "broken_reason")[:MOST]:
        said = f"It does not fire: {reason}" if reason else "It never fires: it has no further fire time."
        yield Seen(subject=name, message=said[:500], schedule_id=pk)


def _starved(now: datetime, threshold: float) -> Iterator[Seen]:
    for pk, name in starved().values_list("pk", "name")[:MOST]:
        said = f"Refused {IN_A_ROW} times in a row: another run always has its lock name."
        yield Seen(subject=name, message=said, schedule_id=pk)


# in: back, most. out: name, id, outcomes and ticks, the latest first, of each enabled schedule whose latest run did
# not end well, as far as its latest ``back`` ticks ran. One that ended well by hand since, or again, is none. Of most
# schedules one tick is read: the latest that ran.
_RAN = """
    SELECT id, fire_time, outcome FROM (
        SELECT id, fire_time, outcome FROM aegis_scheduler_tick WHERE schedule_id = s.id AND manual_key IS NULL
        ORDER BY fire_time DESC LIMIT %(back)s) t
    WHERE outcome IN ('executed', 'failed', 'lost', 'abandoned') ORDER BY fire_time DESC
"""
_ENDED_BADLY = f"""
SELECT s.name, s.id, ran.outcomes, ran.ticks FROM aegis_scheduler_schedule s
CROSS JOIN LATERAL ({_RAN} LIMIT 1) latest
CROSS JOIN LATERAL (
    SELECT array_agg(outcome ORDER BY fire_time DESC) AS outcomes, array_agg(id ORDER BY fire_time DESC) AS ticks
    FROM ({_RAN}) t WHERE latest.outcome <> 'executed'
) ran
WHERE s.enabled AND latest.outcome <> 'executed' AND NOT EXISTS (
    SELECT FROM aegis_scheduler_tick WHERE schedule_id = s.id AND manual_key IS NOT NULL AND outcome = 'executed'
        AND fire_time >= latest.fire_time)
ORDER BY s.name LIMIT %(most)s
"""  # noqa: S608


def _failing(now: datetime, threshold: float) -> Iterator[Seen]:
    """Runs that did not end well since the last one that did. A refusal is no run; retries belong to their run."""
    with connection.cursor() as cursor:
        cursor.execute(_ENDED_BADLY, {"back": RUNS_BACK, "most": MOST})
        found = cursor.fetchall()
    for name, pk, outcomes, ticks in found:
        bad = list(takewhile(lambda outcome: outcome != TickOutcome.EXECUTED, outcomes))
        if len(bad) >= threshold:
            times = "Its latest run" if len(bad) == 1 else f"Its latest {len(bad)} runs"
            said = f"{times} ended as {', '.join(sorted(set(bad)))}."
            yield Seen(subject=name, message=said, schedule_id=pk, marks=tuple(sorted(ticks[: len(bad)])))


def _long(now: datetime, threshold: float) -> Iterator[Seen]:
    """The oldest body of each schedule, if it is inside for that many times as long as its runs usually take."""
    inside = Execution.objects.filter(
        state=ExecutionState.RUNNING, began=True, tick__schedule__isnull=False, started_at__lt=now - LONG
    ).order_by("started_at")
    oldest: dict[Any, tuple[Any, ...]] = {}
    for row in inside.values_list("tick__schedule_id", "tick__schedule_name", "id", "started_at")[:MOST]:
        oldest.setdefault(row[0], row)
    usual = p95_of(oldest)
    for pk, name, execution_id, since in oldest.values():
        stay, p95 = (now - since).total_seconds(), usual[pk]
        if p95 is not None and stay > threshold * p95:
            said = f"Inside for {duration_words(stay)}; 19 of 20 of its runs end within {duration_words(p95)}."
            yield Seen(subject=name, message=said, schedule_id=pk, execution_id=execution_id)


def _release(now: datetime, threshold: float) -> Iterator[Seen]:
    found = LockRelease.objects.filter(asked_at__gte=now - WINDOW).order_by("id")[:MOST]
    for one in found:
        said = f"Release by force by {one.who}: {one.get_result_display()}. {one.reason}"
        yield Seen(subject=f"{one.name} #{one.pk}", message=said[:500], marks=(one.pk,))


RULES: dict[str, Rule] = {
    rule.key: rule
    for rule in (
        Rule(key="overlap", title="Overlap", find=_overlap, unit="overlaps"),
        Rule(key="duplicate", title="Ran too often", find=_duplicate, unit="bodies too many"),
        Rule(key="missed", title="Missed", find=_missed, unit="fire times"),
        Rule(key="beat_silent", title="Beat silent", find=_beat_silent, threshold=15, unit="seconds"),
        Rule(key="blocked", title="Blocked", find=_blocked, threshold=4, unit="executions"),
        Rule(key="orphan", title="Orphan lock", find=_orphan),
        Rule(key="headroom", title="Little headroom", find=_headroom, threshold=20, unit="per cent of the lease"),
        Rule(key="clock", title="Clock offset", find=_clock, threshold=1, unit="seconds"),
        Rule(key="never", title="Never fires", find=_never),
        Rule(key="starved", title="Refused again and again", find=_starved),
        Rule(key="failing", title="Failing", find=_failing, unit="runs in a row"),
        Rule(key="long", title="Inside too long", find=_long, threshold=3, unit="times its usual"),
        Rule(key="release", title="Released by force", find=_release),
    )
}
