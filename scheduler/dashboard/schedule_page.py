"""The page of one schedule: what it is, what it did, and what was done to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from scheduler import private
from scheduler.admin.facts import WORDS
from scheduler.admin.listing import GLYPHS, TONES, headroom_words, word_of
from scheduler.charts.looks import outcome
from scheduler.charts.runtimes import Run, RunTimes, run_times
from scheduler.charts.scale import duration_words
from scheduler.dashboard.bounds import none_of
from scheduler.dashboard.notes import cut_text
from scheduler.dashboard.params import WIDTH
from scheduler.dashboard.schedule_facts import Facts, TickFact, facts_of
from scheduler.dashboard.tiles import share as share_of
from scheduler.explain import FireTimePreview
from scheduler.models import Schedule, ScheduleChange, Tick
from scheduler.notes import notes
from scheduler.once_key import AGAIN
from scheduler.registry import declared_names
from scheduler.running import BY_HAND, inside
from scheduler.states import TickOutcome

NEXT = 5
TICKS = 15  # shown in the list of the latest
CHANGES = 20
MANUAL = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row of the change history as it is read: ``strategy: none → redis``."""

    at: datetime
    who: str
    said: list[str]
    reason: str


def context(schedule: Schedule, lists: dict[str, str], *, arguments: bool) -> dict[str, Any]:
    """What the template shows. ``lists``: paths of the lists that this user may see, for the links.

    ``arguments``: whether this user may see those of the task.
    """
    now = timezone.now()
    facts = facts_of([schedule], now)[schedule.pk]
    word = word_of(schedule, now)
    return {
        "now": now,
        "word": word,
        "glyph": GLYPHS[word],
        "tone": TONES[word],
        "notes": [
            *notes(schedule, now, declared_names()),
            *([cut_text(facts.counted_from)] if facts.counted_from else []),
        ],
        "explained": _explained(schedule),
        "next_runs": _next(schedule, now) if word in ("Active", "Overdue") else [],
        "inside": inside([schedule.lock_id]).get(schedule.lock_id, []),
        "sharing": list(
            Schedule.objects.filter(lock=schedule.lock)
            .exclude(pk=schedule.pk)
            .order_by("name")
            .values("pk", "name")[:20]
        ),
        "figures": figures(facts),
        "chart": chart(facts, lists),
        "ticks": facts.ticks[:TICKS],
        "manual": _by_hand(schedule),
        "changes": changes(schedule, arguments=arguments),
    }


def _explained(schedule: Schedule) -> str:
    try:
        return schedule.recurrence().explain()
    except ValueError as problem:
        return str(problem)


def _next(schedule: Schedule, now: datetime) -> list[FireTimePreview]:
    try:
        return schedule.recurrence().preview(now, NEXT)
    except ValueError:
        return []


def figures(facts: Facts) -> list[tuple[str, str]]:
    """Of 24 hours, and of the latest runs."""
    total = sum(facts.counts.values())
    ran = share_of(facts.once, total) if total else "-"
    met = f"{facts.overlaps}" if facts.overlaps else none_of(total)
    numbers = {**facts.counts, "misfired": facts.missed}
    shown = [("Ticks, 24 h", f"{total}"), ("Ran once", ran), ("Overlaps", met)]
    if facts.possible:
        shown.append(("Possible overlaps", f"{facts.possible}"))
    shown.append(("Prevented", str(facts.prevented)))
    if gave_way := facts.counts[TickOutcome.PREVENTED]:
        shown.append(("Gave way", str(gave_way)))
    shown += [
        (outcome(key).label, str(numbers.get(key, 0)))
        for key in ("misfired", "failed", "lost", "abandoned", "blocked")
        if numbers.get(key) or key == "misfired"
    ]
    for label, share in (("p50", 0.5), ("p95", 0.95), ("Longest", 1.0)):
        found = facts.percentile(share)
        shown.append((f"{label} run", "-" if found is None else duration_words(found)))
    shown.append(("Headroom", headroom_words(facts)))
    return shown


def chart(facts: Facts, lists: dict[str, str]) -> RunTimes | None:
    """None where nothing was stored yet."""
    path = lists.get("execution", "")
    runs = [
        Run(
            fire_time=tick.fire_time, ran=tick.ran, word=tick.word, workers=tick.workers,
            url=f"{path}?tick__id__exact={tick.id}" if path else "",
        )
        for tick in facts.ticks
    ]  # fmt: skip
    return run_times(runs, facts.lease.seconds if facts.lease else None, width=WIDTH) if runs else None


def _by_hand(schedule: Schedule) -> list[Tick]:
    """The latest runs that somebody asked for."""
    asked = Tick.objects.filter(schedule=schedule, manual_key__regex=f"^(run:|{AGAIN})")
    return list(asked.order_by("-id")[:MANUAL])


def changes(schedule: Schedule, *, arguments: bool) -> list[Change]:
    """The latest, the newest first."""
    rows = ScheduleChange.objects.filter(schedule=schedule).select_related("changed_by")[:CHANGES]
    readable = dict if arguments else private.without
    return [
        Change(
            at=row.changed_at, who=row.who or str(row.changed_by or "-"), reason=row.reason,
            said=_said(readable(row.before), readable(row.after)),
        )
        for row in rows
    ]  # fmt: skip


def _said(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, new in after.items():
        old, label = before.get(name), WORDS.get(name, name.replace("_id", "").replace("_", " "))
        was_nothing = name == BY_HAND or old in (None, "")
        lines.append(f"{label}: {_word(new)}" if was_nothing else f"{label}: {_word(old)} → {_word(new)}")
    return lines


def _word(value: Any) -> Any:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in (None, "") else value


def as_json(schedule: Schedule) -> dict[str, Any]:
    """The run times and counts for programs; instants in UTC, seconds."""
    now = timezone.now()
    facts = facts_of([schedule], now)[schedule.pk]
    return {
        "schema": 1,
        "schedule": schedule.name,
        "now": now.isoformat(),
        "lease": facts.lease.seconds if facts.lease else None,
        "day": {
            "overlaps": facts.overlaps,
            "possible_overlaps": facts.possible,
            "missed_fire_times": facts.missed,
            "outcomes": dict(facts.counts),
            "counted_from": facts.counted_from.isoformat() if facts.counted_from else None,
        },
        "ticks": [_tick(tick) for tick in facts.ticks],
    }


def _tick(tick: TickFact) -> dict[str, Any]:
    return {
        "tick": tick.id, "fire_time": tick.fire_time.isoformat(), "outcome": tick.word, "ran": tick.ran,
        "waited": tick.waited, "workers": list(tick.workers), "token": tick.token, "rivals": tick.rivals,
    }  # fmt: skip
