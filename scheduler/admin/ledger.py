"""Executions and ticks in Django admin: the full record, filtered by what is indexed, exported as it is filtered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from locks import lock_backends
from scheduler.admin.exporting import ExportMixin
from scheduler.admin.facts import FactAdmin, NamedSwitch, instant, shown
from scheduler.dashboard.links import UNSCHEDULED
from scheduler.dashboard.tries import DUE
from scheduler.exporting import rivals
from scheduler.models import Execution, Instance, Schedule, Tick

# Choices offered in one filter.
MOST_CHOICES = 200
# Characters; the ids that beats give are shorter, Celery's own are longer.
LONGEST_TASK_ID = 20


class _Chosen(admin.SimpleListFilter):
    """One value of a column; the choices come from a small table, never from the ledger."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.parameter_name or "": self.value()}) if self.value() else queryset

    def has_output(self) -> bool:
        """A value that a link chose holds, even where there is nothing to choose from."""
        return super().has_output() or bool(self.value())

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Those that there are, and the one that a link chose if it is none of them."""
        chosen = self.value()
        if chosen and chosen not in {str(key) for key, _ in self.lookup_choices}:
            self.lookup_choices = [*self.lookup_choices, (chosen, chosen)]
        return super().choices(changelist)


class _Strategy(_Chosen):
    title, parameter_name = "strategy", "lock_alias"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in lock_backends.aliases()]


class _OfSchedule(_Chosen):
    title, parameter_name = "schedule", "schedule__id__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Schedule.objects.order_by("name").values_list("pk", "name")[:MOST_CHOICES]
        return [(str(pk), name) for pk, name in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value() or ""
        return super().queryset(request, queryset) if not value or value.isdecimal() else queryset.none()


class _TicksSchedule(_OfSchedule):
    parameter_name = "tick__schedule__id__exact"


class _Unscheduled(_Chosen):
    """Ticks without a schedule, by what the pages call them; only a link of the overview sets it."""

    title, parameter_name = "without a schedule", UNSCHEDULED

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        name = self.value()
        called = Q(schedule_name=name) | Q(schedule_name="", task=name)
        return queryset.filter(called, schedule=None) if name else queryset


class _Worker(_Chosen):
    title, parameter_name = "worker", "worker"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        workers = Instance.objects.filter(kind=Instance.Kind.WORKER).order_by("name")
        return [(name, name) for name in workers.values_list("name", flat=True).distinct()[:MOST_CHOICES]]


@admin.register(Tick)
class TickAdmin(ExportMixin, FactAdmin):
    exported, kept_from = "ticks", "fire_time"
    list_display = (
        instant("fire_time"), "of_schedule", "state", "came_to", "try_number", "copies",
        shown("once_per_tick", boolean=True),
    )  # fmt: skip
    list_filter = ("state", "outcome", _OfSchedule, _Unscheduled, _Strategy)
    search_fields = ("schedule_name", "=lock_name")
    date_hierarchy = "fire_time"

    @admin.display(description="schedule / strategy", ordering="schedule_name")
    def of_schedule(self, tick: Tick) -> str:
        return _of_schedule(tick, tick.lock_alias)

    @admin.display(description="outcome / reason", ordering="outcome")
    def came_to(self, tick: Tick) -> str:
        return _two_lines(tick.get_outcome_display() or "-", tick.reason)

    @admin.display(description="attempt", ordering="attempt")
    def try_number(self, tick: Tick) -> str:
        return _try_number(tick.attempt, tick)


@admin.register(Execution)
class ExecutionAdmin(ExportMixin, FactAdmin):
    exported, kept_from = "executions", "recorded_at"
    list_display = (
        "due", "of_schedule", "came_to", "ran_by", "token", "waited", "seconds_inside", "rivals", "holder_link",
        "try_number",
    )  # fmt: skip
    list_filter = ("state", _TicksSchedule, _Worker, _Strategy, ("guarded", NamedSwitch))
    list_select_related = ("tick",)
    search_fields = ("=lock_name", "=worker", "=task_id", "tick__schedule_name")
    date_hierarchy = "recorded_at"
    # Of the links on the dashboard, whose windows are of fire times.
    linked = ("tick__fire_time__gte", "tick__fire_time__lt", "tick__schedule__id__exact")

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        return lookup in self.linked or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution]:
        return super().get_queryset(request).annotate(rival_count=rivals(), wait_began=DUE)

    @admin.display(description="due (UTC)", ordering="tick__fire_time")
    def due(self, execution: Execution) -> str:
        return f"{execution.tick.fire_time:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="schedule / strategy", ordering="tick__schedule_name")
    def of_schedule(self, execution: Execution) -> str:
        return _of_schedule(execution.tick, execution.lock_alias)

    @admin.display(description="worker / task id", ordering="worker")
    def ran_by(self, execution: Execution) -> str:
        """A long task id by its beginning; the page of the execution has all of it."""
        full = execution.task_id
        short = full if len(full) <= LONGEST_TASK_ID else f"{full[:8]}…"
        return _two_lines(execution.worker or "-", format_html('<span title="{}">{}</span>', full, short))

    @admin.display(description="outcome / reason", ordering="state")
    def came_to(self, execution: Execution) -> str:
        return _two_lines(execution.get_state_display(), execution.reason)

    @admin.display(description="wait")
    def waited(self, execution: Execution) -> str:
        """From the fire time, or from when it was asked for, to the start of the body or the refusal."""
        at = execution.started_at or execution.recorded_at
        return f"{(at - execution.wait_began).total_seconds():.2f} s"  # type: ignore[attr-defined]

    @admin.display(description="ran", ordering="ran")
    def seconds_inside(self, execution: Execution) -> str:
        return "-" if execution.ran is None else f"{execution.ran:.2f} s"

    @admin.display(description="rivals", ordering="rival_count")
    def rivals(self, execution: Any) -> int:
        return execution.rival_count or 0

    @admin.display(description="held by")
    def holder_link(self, execution: Execution) -> str:
        """The execution that was inside when this one was refused."""
        holder = execution.holder_id
        return format_html('<a href="{}/change/">{}</a>', holder, holder) if holder else "-"

    @admin.display(description="attempt", ordering="attempt")
    def try_number(self, execution: Execution) -> str:
        return _try_number(execution.attempt, execution.tick)


def _of_schedule(tick: Tick, strategy: str) -> str:
    return _two_lines(tick.schedule_name or tick.task, strategy)


def _try_number(attempt: int, tick: Tick) -> str:
    return _two_lines(str(attempt), "manual" if tick.manual_key is not None else "")


def _two_lines(first: str, second: str) -> str:
    """A value of a list and, small below it, what belongs to it: one column instead of two."""
    return format_html("{}<br><small>{}</small>", first, second)
