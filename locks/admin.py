"""Read-only views of the tables. Facts are shown, never edited; a lease is ended by a backend's verb."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from .models import ClaimRecord, FenceRecord, LeaseRecord


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists and shows rows to those who may view them; offers nothing that changes one."""

    search_fields = ["name"]
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(LeaseRecord)
class LeaseRecordAdmin(ReadOnlyAdmin):
    list_display = ["name", "holder", "token", "acquired_at", "expires_at"]


@admin.register(ClaimRecord)
class ClaimRecordAdmin(ReadOnlyAdmin):
    list_display = ["name", "holder", "version", "acquired_at", "closes_at"]


@admin.register(FenceRecord)
class FenceRecordAdmin(ReadOnlyAdmin):
    list_display = ["name", "token", "alias", "grant_no", "lease_id"]
