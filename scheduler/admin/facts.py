"""Ticks, executions, processes and changes: facts, so they are read and never edited here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from scheduler.models import Execution, Instance, LockName, ScheduleChange, Tick


def _to_the_second(field: str) -> Callable[[Any], str]:
    """A column that shows an instant (UTC) with its seconds; ticks are often less than a minute apart."""

    @admin.display(description=field.replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        at = getattr(row, field)
        return f"{at:%Y-%m-%d %H:%M:%S}" if at else "-"

    column.__name__ = f"{field}_shown"
    return column


class FactAdmin(admin.ModelAdmin):
    """No add, change or delete; no count over millions of rows."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Tick)
class TickAdmin(FactAdmin):
    list_display = (
        _to_the_second("fire_time"), "schedule_name", "state", "outcome", "reason", "attempt", "copies", "lock_alias",
        "once_per_tick",
    )  # fmt: skip
    list_filter = ("state", "outcome", "lock_alias")
    search_fields = ("schedule_name", "=lock_name")
    date_hierarchy = "fire_time"


@admin.register(Execution)
class ExecutionAdmin(FactAdmin):
    list_display = (
        _to_the_second("recorded_at"), "schedule_name", "state", "worker", "token", "seconds_inside", "reason",
        "acquired_in", "attempt", "holder_id",
    )  # fmt: skip
    list_filter = ("state", "lock_alias", "guarded")
    list_select_related = ("tick",)
    search_fields = ("=lock_name", "=worker", "tick__schedule_name")
    date_hierarchy = "recorded_at"

    @admin.display(description="schedule")
    def schedule_name(self, execution: Execution) -> str:
        return execution.tick.schedule_name or execution.tick.task

    @admin.display(description="acquired in")
    def acquired_in(self, execution: Execution) -> str:
        return "-" if execution.acquire_ms is None else f"{execution.acquire_ms:.1f} ms"

    @admin.display(description="ran")
    def seconds_inside(self, execution: Execution) -> str:
        return "-" if execution.ran is None else f"{execution.ran:.2f} s"


@admin.register(LockName)
class LockNameAdmin(FactAdmin):
    list_display = ("name", "alias_wanted", "alias_in_force")
    search_fields = ("name",)


@admin.register(Instance)
class InstanceAdmin(FactAdmin):
    list_display = ("name", "kind", "host", "pid", *map(_to_the_second, ("started_at", "heartbeat_at", "stopped_at")))
    list_filter = ("kind",)


@admin.register(ScheduleChange)
class ScheduleChangeAdmin(FactAdmin):
    list_display = (_to_the_second("changed_at"), "schedule_name", "changed_by", "before", "after", "reason")
    search_fields = ("schedule_name", "reason")
    date_hierarchy = "changed_at"
