"""The page of one schedule and its data, in Django admin."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_safe

from scheduler import private, releasing
from scheduler.admin.running import RanMixin
from scheduler.dashboard import dialog, schedule_page
from scheduler.dashboard.header import header
from scheduler.dashboard.links import lists_of
from scheduler.dashboard.params import Link
from scheduler.held import excludes
from scheduler.models import Schedule
from scheduler.notes import noted


class SchedulePageMixin(RanMixin):
    """``view_schedule`` (or ``change_schedule``) to see it; each button by the permission of its verb."""

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "aegis_scheduler_schedule"
        return [
            path("<int:pk>/", wrap(self.page_view), name=f"{name}_page"),
            path("<int:pk>/data/", wrap(self.data_view), name=f"{name}_data"),
            *super().get_urls(),
        ]

    @method_decorator(require_safe)
    def page_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        schedule = self._seen(request, pk)
        alias = schedule.lock.alias_in_force or schedule.lock.alias_wanted
        return dialog.render(
            self,
            request,
            "scheduler/schedule.html",
            title=schedule.name,
            crumbs=[Link(text="Schedules", url=self.path_to("changelist"))],
            schedule=schedule,
            alias=alias,
            no_lock=not excludes(alias),
            lock=_lock(alias, schedule.lock_id),
            header=header(),
            data_url=self.path_to("data", pk),
            edit_url=self.path_to("change", pk) if self.has_change_permission(request) else "",
            buttons=self._buttons(request, schedule),
            **schedule_page.context(
                schedule, lists_of(request, self.admin_site), arguments=private.may_see(request.user)
            ),
        )

    @method_decorator(require_safe)
    def data_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The figures as JSON, under the same permission."""
        return JsonResponse(schedule_page.as_json(self._seen(request, pk)))

    def _seen(self, request: HttpRequest, pk: int) -> Schedule:
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = Schedule.objects.select_related("lock").filter(pk=pk)
        schedule = noted(found).first()
        if schedule is None:
            raise Http404(f"There is no schedule {pk}.")
        return schedule

    def _buttons(self, request: HttpRequest, schedule: Schedule) -> list[Link]:
        """Of the verbs that this user may use on it."""
        unfit = ("pause" if schedule.paused_at else "resume", "enable" if schedule.enabled else "disable")
        return [
            Link(text=verb.label, url=self.path_to(verb.name, schedule=schedule.pk))
            for verb in self.verbs
            if verb.name not in unfit and request.user.has_perm(f"aegis_scheduler.{verb.permission}")
        ]


def _lock(alias: str, name: str) -> str:
    """Whether it is held, by its store."""
    if not excludes(alias):
        return "no lock: this strategy holds nothing"
    try:
        info = releasing.look(alias, name)
    except releasing.StoreUnreachable:
        return f"{alias}: unreachable, so it is not known whether the lock is held"
    return "free" if info is None else f"held by {info.holder}"
