"""Export of the ledger: executions and ticks as CSV or JSON lines, row by row, under names that stay.

The columns are documented in docs/reference/export.md. Instants are UTC in ISO 8601. A body's error text is left out:
it may hold what the task was given.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, F, Model, OuterRef, Q, QuerySet, Subquery

from scheduler.models import Execution, Tick

FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/jsonl; charset=utf-8"}
# Rows fetched from the server-side cursor at once.
CHUNK = 2_000
# How a spreadsheet recognises a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def rivals() -> Subquery:
    """Deliveries that were refused because this execution was inside."""
    refused = Execution.objects.filter(holder=OuterRef("pk")).order_by().values("holder")
    return Subquery(refused.annotate(number=Count("pk")).values("number"))


def _manual(path: str) -> ExpressionWrapper:
    return ExpressionWrapper(Q(**{f"{path}__isnull": False}), BooleanField())


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One kind of row: column -> where it comes from. ``due`` is what ``since`` and ``until`` compare."""

    model: type[Model]
    due: str
    columns: dict[str, Any]

    def header(self) -> list[str]:
        """The columns' names, in order."""
        return [*self.columns]

    def rows(self, queryset: QuerySet[Any], most: int) -> Iterator[dict[str, Any]]:
        """The rows of a filtered queryset, at most ``most`` and one more, which tells that it was cut."""
        sources = [F(source) if isinstance(source, str) else source() for source in self.columns.values()]
        found = queryset.values_list(*sources)[: most + 1]
        for row in found.iterator(chunk_size=CHUNK):
            yield dict(zip(self.columns, map(_plain, row), strict=True))


EXPORTS: dict[str, Export] = {
    "executions": Export(
        model=Execution,
        due="tick__fire_time",
        columns={
            "id": "id", "due": "tick__fire_time", "schedule": "tick__schedule_name", "task": "tick__task",
            "manual": lambda: _manual("tick__manual_key"), "attempt": "attempt", "outcome": "state",
            "reason": "reason", "worker": "worker", "pid": "pid", "strategy": "lock_alias", "lock_name": "lock_name",
            "tick_guard": "guarded", "token": "token", "acquire_ms": "acquire_ms", "recorded_at": "recorded_at",
            "started_at": "started_at", "ended_at": "ended_at", "ran_seconds": "ran", "rivals": rivals,
            "holder": "holder_id", "tick": "tick_id", "task_id": "task_id",
        },
    ),
    "ticks": Export(
        model=Tick,
        due="fire_time",
        columns={
            "id": "id", "due": "fire_time", "schedule": "schedule_name", "task": "task",
            "manual": lambda: _manual("manual_key"), "state": "state", "outcome": "outcome", "reason": "reason",
            "attempt": "attempt", "copies": "copies", "strategy": "lock_alias", "lock_name": "lock_name",
            "tick_guard": "once_per_tick", "delivery": "delivery", "planned_at": "planned_at",
            "dispatched_at": "dispatched_at", "deadline": "deadline", "closed_at": "closed_at",
            "missed_count": "missed_count", "missed_through": "through",
        },
    ),
}  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def lines(export: Export, queryset: QuerySet[Any], form: str, most: int) -> Iterator[str]:
    """The export, a line at a time; a last line says where it was cut after ``most`` rows."""
    write = _csv if form == "csv" else _json
    if form == "csv":
        yield _row(export.header())
    for number, row in enumerate(export.rows(queryset, most)):
        if number == most:
            yield _cut(form, most)
            return
        yield write(row)


def _csv(row: dict[str, Any]) -> str:
    return _row([neutral(value) for value in row.values()])


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


class _Last:
    """What ``csv`` wrote last."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _row(cells: list[Any]) -> str:
    last = _Last()
    csv.writer(last).writerow(cells)
    return last.text


def _cut(form: str, most: int) -> str:
    said = f"Cut after {most} rows: narrow the filter, or raise AEGIS['EXPORT_ROWS']."
    return _row([said]) if form == "csv" else _json({"notice": said})


def neutral(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula, with an apostrophe before it; numbers stay numbers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
