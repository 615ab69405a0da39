"""Read-only views of the tables. Facts are shown, never edited; a lease is ended by a backend's verb."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import BooleanField, ExpressionWrapper, Model, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .models import EPOCH, AdvisoryRecord, ClaimRecord, FenceRecord, LeaseRecord
from .plain_lists import ReadOnlyList


class ReadOnlyAdmin(ReadOnlyList):
    """Lists and shows rows to those who may view them; offers nothing that changes one."""

    search_fields = ["name"]
    list_per_page = 50
    show_full_result_count = False


class HeldAdmin(ReadOnlyAdmin):
    """Adds whether a name is held, by the database's clock. A free row still names its last holder."""

    end: str

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        is_held = Q(lease_id__isnull=False, **{f"{self.end}__gt": Now()})
        rows = super().get_queryset(request)
        shown: QuerySet[Model] = rows.annotate(is_held=ExpressionWrapper(is_held, BooleanField()))
        return shown

    @admin.display(description=_("held"), boolean=True, ordering="is_held")
    def held(self, row: Any) -> bool:
        return bool(row.is_held)

    @admin.display(description=_("acquired (UTC)"), ordering="acquired_at")
    def acquired(self, row: Any) -> str:
        return _instant(row.acquired_at)

    @admin.display(description=_("ends (UTC)"))
    def ends(self, row: Any) -> str:
        """A free row carries the epoch, which is no time that anybody wants to read."""
        end = getattr(row, self.end)
        return "-" if end == EPOCH else _instant(end)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Instants as the lists show them."""
        shown = {"acquired_at": self.acquired, self.end: self.ends}
        return [shown.get(str(name), name) for name in super().get_fields(request, obj)]


def _instant(at: datetime | None) -> str:
    """With its seconds: leases are short."""
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "-"


@admin.register(LeaseRecord)
class LeaseRecordAdmin(HeldAdmin):
    end = "expires_at"
    list_display = ["name", "held", "holder", "token", "acquired", "ends"]


@admin.register(ClaimRecord)
class ClaimRecordAdmin(HeldAdmin):
    end = "closes_at"
    list_display = ["name", "held", "holder", "version", "acquired", "ends"]


@admin.register(AdvisoryRecord)
class AdvisoryRecordAdmin(ReadOnlyAdmin):
    """The registry. Whether a name is held is known to the lock only, not to this row."""

    list_display = ["name", "key"]


@admin.register(FenceRecord)
class FenceRecordAdmin(ReadOnlyAdmin):
    list_display = ["name", "token", "alias", "grant_no", "lease_id"]
