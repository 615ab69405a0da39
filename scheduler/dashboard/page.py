"""What every page of the dashboard in Django admin shares: address, permission, navigation, data beside it.

Each page hangs on a model without a table, so that any project's site has it in its index.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_safe

from locks.plain_lists import ReadOnlyList
from scheduler.dashboard import live
from scheduler.dashboard.params import Link, Params
from scheduler.models import Alert, Dashboard, FailureMatrix, Locks, Strategies, Timeline, Workers

# In the order in which they stand above each page.
PAGES: tuple[type[Model], ...] = (Dashboard, Timeline, Strategies, FailureMatrix, Locks, Workers, Alert)
# Those that show a window of the ledger; the others know only what is now.
FREEZABLE = (Dashboard, Timeline, Strategies)


class PageAdmin(ReadOnlyList):
    """A read-only page and its data, for those who have its permission only."""

    permission: ClassVar[str] = "aegis_scheduler.view_dashboard"
    template: ClassVar[str]
    # Whether all that the page shows follows from the ledger: then a live page of which nothing changed is not drawn.
    of_the_ledger: ClassVar[bool] = True

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(self.permission)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

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
        wanted = live.is_wanted(request)
        version = live.ledger_version(request) if wanted and self.of_the_ledger else None
        if answer := live.unchanged(request, version):
            return answer
        page = self.page(request)
        context = {
            **({} if wanted else self.admin_site.each_context(request)),
            **page,
            "pages": self.pages(request),
            "live": live.live(frozen=page.get("frozen")),
            "frame": "scheduler/_regions.html" if wanted else "admin/base_site.html",
            **(extra_context or {}),
        }
        return live.regions(TemplateResponse(request, self.template, context), version)

    @method_decorator(require_safe)
    def data_view(self, request: HttpRequest) -> HttpResponseBase:
        """The same as JSON, under the same permission."""
        self._refuse_strangers(request)
        return JsonResponse(self.data(request))

    def _refuse_strangers(self, request: HttpRequest) -> None:
        """``admin_view`` lets every member of staff in."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def path_of(self, model: type[Model], view: str = "changelist") -> str:
        """The path of a page on this site."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"
        return reverse(name, current_app=self.admin_site.name)

    def pages(self, request: HttpRequest) -> list[Link]:
        """The pages that this user may see, the one that is shown marked.

        The schedule goes along, and a frozen "now" to those that can be frozen.
        """
        kept = Params({name: request.GET[name] for name in ("schedule", "at") if name in request.GET})
        return [
            Link(
                text=str(model._meta.verbose_name_plural).capitalize(),
                url=kept.url(self.path_of(model), **({} if model in FREEZABLE else {"at": None})),
                current=model is self.model,
            )
            for model in PAGES
            if (page := self.admin_site._registry.get(model)) and page.has_view_permission(request)
        ]

    def page(self, request: HttpRequest) -> dict[str, Any]:
        """The context of the template."""
        raise NotImplementedError

    def data(self, request: HttpRequest) -> dict[str, Any]:
        """What the page shows, for programs."""
        raise NotImplementedError
