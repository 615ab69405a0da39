"""Lists of Django admin that answer whatever is in their address."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest


class PlainList(admin.ModelAdmin):  # type: ignore[type-arg]
    """A filter with the character NUL, which no text of PostgreSQL holds, is refused as other bad filters are.

    Django looks for it in the search and not in the filters: the list would end in an error of the server.
    """

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Raises ``IncorrectLookupParameters``; the list then shows itself unfiltered and says so."""
        if any("\x00" in text for key in request.GET for text in (key, *request.GET.getlist(key))):
            raise IncorrectLookupParameters
        return super().get_changelist_instance(request)


class ReadOnlyList(PlainList):
    """Rows can be looked at by those who may, and nobody adds, changes or deletes one here."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
