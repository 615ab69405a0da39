"""Processes, lock names, releases and changes: facts, so they are read and never edited here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import models
from django.http import HttpRequest

from locks.plain_lists import ReadOnlyList
from scheduler import private
from scheduler.admin.private_lists import PrivateList
from scheduler.models import Instance, LockName, LockRelease, ScheduleChange

# The glossary's words for columns that are named for the code.
WORDS = {
    "lock_alias": "strategy",
    "alias": "strategy",
    "once_per_tick": "tick guard",
    "guarded": "tick guard",
    "ttl": "TTL",
    "pid": "PID",
}


def _text(value: Any) -> Any:
    """Instants in UTC with their seconds, ticks being often less than a minute apart; fractions that can be read."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return "-" if value in (None, "") else value


def instant(field: str) -> Callable[[Any], Any]:
    """As ``shown``, with the zone."""
    return shown(field, zone=" (UTC)")


def shown(field: str, *, boolean: bool = False, zone: str = "") -> Callable[[Any], Any]:
    """A field under its name for people and as people read it; it keeps its help text."""

    @admin.display(description=WORDS.get(field, field.replace("_", " ")) + zone, ordering=field, boolean=boolean)
    def column(row: Any) -> Any:
        value = getattr(row, field)
        return value if boolean else _text(value)

    column.__name__ = field
    return column


class _Named(admin.AllValuesFieldListFilter):
    """A filter under the glossary's word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = WORDS[self.field_path]


class NamedSwitch(admin.BooleanFieldListFilter):
    """A filter on a switch under the glossary's word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = WORDS[self.field_path]


# Rows beyond which the links to single days, which read them all, are left out until a filter narrows the list.
MOST_FOR_DAYS = 100_000


class FactList(ChangeList):
    """A list that stays fast however many rows there are."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if self.result_count > MOST_FOR_DAYS:
            self.date_hierarchy = None


class FactAdmin(PrivateList, ReadOnlyList):
    """No add, change or delete; no count over millions of rows."""

    show_full_result_count = False
    list_per_page = 50

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return FactList

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """The fields that the user may see, as the lists show them; choices and relations as Django does."""
        kinds = {field.name: field for field in self.model._meta.fields}
        hidden = frozenset() if private.may_see(request.user) else private.FIELDS
        return [self._field(kinds[str(name)]) for name in super().get_fields(request, obj) if name not in hidden]

    @staticmethod
    def _field(field: Any) -> Any:
        if isinstance(field, models.DateTimeField):
            return instant(field.name)
        plain = field.name in WORDS or isinstance(field, models.FloatField)
        return shown(field.name, boolean=isinstance(field, models.BooleanField)) if plain else field.name


@admin.register(LockName)
class LockNameAdmin(FactAdmin):
    list_display = ("name", "alias_wanted", "alias_in_force")
    search_fields = ("name",)


@admin.register(Instance)
class InstanceAdmin(FactAdmin):
    list_display = (
        "name", "kind", "host", "pid", "version", "pool", "concurrency",
        *map(instant, ("started_at", "heartbeat_at", "stopped_at")),
    )  # fmt: skip
    list_filter = ("kind",)


@admin.register(ScheduleChange)
class ScheduleChangeAdmin(FactAdmin):
    list_display = (instant("changed_at"), "schedule_name", "by", "before", "after", "reason")
    list_select_related = ("changed_by",)
    search_fields = ("schedule_name", "who", "reason")
    date_hierarchy = "changed_at"

    def get_list_display(self, request: HttpRequest) -> Any:
        return self._readable(request, super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return self._readable(request, super().get_fields(request, obj))

    @staticmethod
    def _readable(request: HttpRequest, names: Any) -> list[Any]:
        """The columns, with arguments left out of what was and what is for those who may not see them."""
        if private.may_see(request.user):
            return list(names)
        return [_without(name) if name in ("before", "after") else name for name in names]

    @admin.display(description="who", ordering="who")
    def by(self, change: ScheduleChange) -> str:
        return change.who or str(change.changed_by or "-")


def _without(field: str) -> Callable[[Any], Any]:
    @admin.display(description=field)
    def column(change: ScheduleChange) -> Any:
        return private.without(getattr(change, field))

    column.__name__ = field
    return column


@admin.register(LockRelease)
class LockReleaseAdmin(FactAdmin):
    list_display = (instant("asked_at"), "name", shown("alias"), "lease_id", "result", "who", "reason", "detail")
    list_filter = ("result", ("alias", _Named))
    search_fields = ("=name", "who", "reason", "=lease_id")
    date_hierarchy = "asked_at"
