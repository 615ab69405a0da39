"""What the demo has shown: the audit and the side-effect ledger, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Min, QuerySet

from aegis_site.demo.agreement import Stay, agrees
from aegis_site.demo.models import Effect
from scheduler import collisions
from scheduler.audit import bodies_of
from scheduler.models import Execution, Schedule, Tick
from scheduler.states import OPEN_TICKS, ExecutionState, TickState


@dataclass(frozen=True, slots=True)
class Switches:
    """What guarded a tick."""

    lock: str
    once_per_tick: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One schedule's figures. ``prevented`` counts executions; ``missed`` counts misfired ticks.

    ``before``: what guarded its earlier ticks where that was changed, the first first; the figures are of all.
    ``agrees``: whether the audit says what the ledger says.
    """

    name: str
    lock: str
    once_per_tick: bool
    before: list[Switches]
    delivery: str
    ticks: int
    executed: int
    prevented: int
    duplicate_deliveries: int
    duplicates: int
    overlaps: int
    overlaps_possible: int
    missed: int
    blocked: int
    abandoned: int
    lost: int
    failed: int
    acquire_p50_ms: float | None
    acquire_p99_ms: float | None
    ledger_effects: int
    ledger_duplicates: int
    ledger_overlaps: int
    ledger_settled_twice: str
    agrees: bool


def _before(now: Switches, ticks: QuerySet[Tick]) -> list[Switches]:
    found = ticks.values_list("lock_alias", "once_per_tick").annotate(first=Min("fire_time")).order_by("first")
    return [one for lock, guarded, _ in found if (one := Switches(lock, guarded)) != now]


def results() -> list[Result]:
    """The figures of every schedule, over ticks that are over and bodies that have ended."""
    return [_result(schedule) for schedule in Schedule.objects.select_related("lock").order_by("pk")]


def as_json(rows: list[Result], *, seconds: float, workers: int, beats: int) -> dict[str, Any]:
    """One object: what ``--format json`` prints."""
    return {
        "seconds": round(seconds, 1),
        "workers": workers,
        "beats": beats,
        "schedules": [asdict(row) for row in rows],
        "audit_agrees_with_ledger": all(row.agrees for row in rows),
    }


def _result(schedule: Schedule) -> Result:
    now = Switches(schedule.lock.alias_in_force or schedule.lock.alias_wanted, schedule.once_per_tick)
    ticks = Tick.objects.filter(schedule=schedule)
    executions = Execution.objects.filter(tick__schedule=schedule)
    states = Counter(executions.values_list("state", flat=True))
    bodies = bodies_of(executions)
    counted = collisions.count(bodies)
    effects = Effect.objects.filter(schedule=schedule.name, left_at__isnull=False)
    stays = [Stay(**row) for row in effects.values(*Stay.__annotations__)]
    waits = sorted(ms for ms in executions.values_list("acquire_ms", flat=True) if ms is not None)
    return Result(
        name=schedule.name,
        lock=now.lock,
        once_per_tick=now.once_per_tick,
        before=_before(now, ticks),
        delivery=schedule.delivery,
        ticks=ticks.exclude(state__in=OPEN_TICKS).count(),
        executed=states[ExecutionState.EXECUTED],
        prevented=states[ExecutionState.PREVENTED],
        duplicate_deliveries=states[ExecutionState.DUPLICATE],
        duplicates=counted.duplicates,
        overlaps=counted.proven,
        overlaps_possible=counted.possible,
        missed=ticks.filter(state=TickState.MISFIRED).count(),
        blocked=states[ExecutionState.BLOCKED],
        abandoned=states[ExecutionState.ABANDONED],
        lost=states[ExecutionState.LOST],
        failed=states[ExecutionState.FAILED],
        acquire_p50_ms=_percentile(waits, 0.50),
        acquire_p99_ms=_percentile(waits, 0.99),
        ledger_effects=len(stays),
        ledger_duplicates=collisions.ledger_duplicates(stay.subject for stay in stays),
        ledger_overlaps=collisions.ledger_overlaps((stay.resource, stay.entered_at, stay.left_at) for stay in stays),
        ledger_settled_twice=_money_twice(stays),
        agrees=agrees(bodies, stays),
    )


def _money_twice(stays: list[Stay]) -> str:
    """The amounts that were settled again after the first time, as money."""
    seen: set[str] = set()
    again = 0
    for stay in stays:
        again += stay.amount_cents if stay.subject in seen else 0
        seen.add(stay.subject)
    return f"{again // 100}.{again % 100:02d}"


def _percentile(values: list[float], share: float) -> float | None:
    """The nearest-rank percentile, in the unit of the values, rounded to two places."""
    return round(values[min(len(values) - 1, int(share * len(values)))], 2) if values else None
