"""Export of a list of facts as it is filtered, and how much there is of it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import Min
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_GET

from scheduler.conf import conf
from scheduler.exporting import EXPORTS, FORMATS, lines
from scheduler.pruning import kept_days

PERMISSION = "aegis_scheduler.export_execution"
# Of the planner: a count would read the whole table.
_ABOUT = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = %s::regclass"


class ExportMixin(admin.ModelAdmin):
    """Links to the list as CSV and JSON lines, for those who may export; the same filters, the same order."""

    change_list_template = "admin/aegis_scheduler/exported_change_list.html"
    exported: ClassVar[str]
    kept_from: ClassVar[str]

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_export"
        view = self.admin_site.admin_view(self.export_view)
        return [path("export/<str:form>/", view, name=name), *super().get_urls()]

    def has_export_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm(PERMISSION)

    @method_decorator(require_GET)
    def export_view(self, request: HttpRequest, form: str) -> HttpResponseBase:
        """Stream what the list shows under the same parameters. 404 for a format that there is not."""
        if not self.has_export_permission(request):
            raise PermissionDenied
        if form not in FORMATS:
            return HttpResponse(f"There is no export as {form!r}: use csv or json.", status=404)
        try:
            rows = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(f"{self._path('changelist')}?e=1")
        most = conf("EXPORT_ROWS")
        response = StreamingHttpResponse(lines(EXPORTS[self.exported], rows, form, most), content_type=FORMATS[form])
        stamp = f"{timezone.now():%Y%m%dT%H%M%SZ}"
        ending = "csv" if form == "csv" else "jsonl"
        response["Content-Disposition"] = f'attachment; filename="aegis-{self.exported}-{stamp}.{ending}"'
        response["X-Aegis-Row-Limit"] = str(most)
        response["X-Content-Type-Options"] = "nosniff"
        return response

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        query = f"?{request.GET.urlencode()}" if request.GET else ""
        links = []
        if self.has_export_permission(request):
            links = [(word, self._path("export", form) + query) for word, form in _WORDS]
        extra = {
            "exports": links,
            "most_exported": f"{conf('EXPORT_ROWS'):,}",
            **self._kept(),
            **(extra_context or {}),
        }
        return super().changelist_view(request, extra)

    def _kept(self) -> dict[str, Any]:
        """About how many rows there are, and since when: two reads that no table is read through for."""
        with connection.cursor() as cursor:
            cursor.execute(_ABOUT, [self.opts.db_table])
            about = cursor.fetchone()[0]
        oldest = self.model._default_manager.aggregate(oldest=Min(self.kept_from))["oldest"]
        return {"about_rows": f"{about:,}" if about else "", "oldest": oldest, "keep_days": kept_days()}

    def _path(self, view: str, *args: str) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{view}"
        return reverse(name, args=args, current_app=self.admin_site.name)


_WORDS = (("Export CSV", "csv"), ("Export JSON lines", "json"))
