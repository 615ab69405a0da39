"""The dashboard's pages in Django admin, each on a model without a table: any project's site has them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_safe

from scheduler.dashboard import collision_page, timeline_page
from scheduler.dashboard.params import Link, Params
from scheduler.dashboard.schedule_table import COLUMNS, figures_of
from scheduler.models import Dashboard, Timeline

PERMISSION = "aegis_scheduler.view_dashboard"


class PageAdmin(admin.ModelAdmin):
    """A read-only page and its data, for those who have ``view_dashboard`` only."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(PERMISSION)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        """The page and its data instead of a model's list and forms: there is no table behind it."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("", self.admin_site.admin_view(self.changelist_view), name=f"{name}_changelist"),
            path("data/", self.admin_site.admin_view(self.data_view), name=f"{name}_data"),
        ]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        self._refuse_strangers(request)
        request.current_app = self.admin_site.name  # read by {% url %}
        context = {
            **self.admin_site.each_context(request),
            **self.page(request),
            "pages": self.pages(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.template, context)

    @method_decorator(require_safe)
    def data_view(self, request: HttpRequest) -> HttpResponseBase:
        """The same as JSON, under the same permission."""
        self._refuse_strangers(request)
        return JsonResponse(self.data(request))

    def _refuse_strangers(self, request: HttpRequest) -> None:
        """``admin_view`` lets every member of staff in."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def path_of(self, model: type[Dashboard], view: str = "changelist") -> str:
        """The path of a page on this site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"
        return reverse(name, current_app=self.admin_site.name)

    def pages(self, request: HttpRequest) -> list[Link]:
        """The pages, the one that is shown marked; schedule and frozen "now" go along."""
        kept = Params({name: request.GET[name] for name in ("schedule", "at") if name in request.GET})
        return [
            Link(
                text=str(model._meta.verbose_name_plural).capitalize(),
                url=kept.url(self.path_of(model)),
                current=model is self.model,
            )
            for model in (Dashboard, Timeline)
        ]

    template: ClassVar[str]

    def page(self, request: HttpRequest) -> dict[str, Any]:
        """The context of the template."""
        raise NotImplementedError

    def data(self, request: HttpRequest) -> dict[str, Any]:
        """What the page shows, for programs."""
        raise NotImplementedError


@admin.register(Dashboard)
class CollisionsAdmin(PageAdmin):
    template = "scheduler/collisions.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = collision_page.report(request.GET.dict())
        paths = (self.path_of(Timeline), self.path_of(Dashboard, "data"))
        sums = figures_of(found.figures.total)
        return {**collision_page.context(found, *paths), "columns": COLUMNS, "sums": sums}

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return collision_page.as_json(collision_page.report(request.GET.dict()))


@admin.register(Timeline)
class TimelineAdmin(PageAdmin):
    template = "scheduler/timeline.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = timeline_page.report(request.GET.dict())
        return timeline_page.context(found, self.path_of(Timeline, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return timeline_page.as_json(timeline_page.report(request.GET.dict()))
