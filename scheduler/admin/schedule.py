"""Schedules in Django admin: list, form with the next five runs, change history."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST

from scheduler import private
from scheduler.admin.facts import instant
from scheduler.admin.listing import ListingMixin
from scheduler.admin.pausing import PauseVerb, ResumeVerb
from scheduler.admin.retargeting import RetargetVerb
from scheduler.admin.running import RunVerb
from scheduler.admin.schedule_page import SchedulePageMixin
from scheduler.admin.switching import DisableVerb, EnableVerb
from scheduler.changes import note
from scheduler.editing.form import INSTANTS, ScheduleForm
from scheduler.editing.storing import store
from scheduler.models import Schedule
from scheduler.strategy_lines import lines

ARGUMENTS = ("args", "kwargs")


@admin.register(Schedule)
class ScheduleAdmin(ListingMixin, SchedulePageMixin, admin.ModelAdmin):
    """Edits follow within two seconds; each leaves a change row with who, what and why."""

    form = ScheduleForm
    verbs = (PauseVerb(), ResumeVerb(), RunVerb(), RetargetVerb(), EnableVerb(), DisableVerb())
    change_form_template = "admin/aegis_scheduler/schedule/change_form.html"
    save_on_top = True
    fieldsets = (
        (None, {"fields": ("name", "task", ARGUMENTS, "enabled", "notes")}),
        (
            "When",
            {
                "fields": (
                    ("cron_expression", "time_zone"), "every_seconds", "once_at", ("start_at", "end_at"),
                    "jitter_seconds",
                ),
                "description": "Exactly one of cron, every and once at.",
            },
        ),
        ("Exclusive", {"fields": (("lock_name", "strategy"), "ttl", "overlap", "once_per_tick", "delivery")}),
        (
            "If a run is missed or dies",
            {"fields": ("misfire", ("misfire_grace", "catch_up_window"), "max_attempts")},
        ),
        ("More", {"classes": ("collapse",), "fields": (("queue", "priority"), "anchor")}),
        ("Change history", {"fields": ("reason",)}),
    )  # fmt: skip

    def save_model(self, request: HttpRequest, obj: Schedule, form: ScheduleForm, change: bool) -> None:
        store(form, who=request.user)

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        note(obj, {"deleted": [obj.name, None]}, why="", who=request.user)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for obj in queryset:
            self.delete_model(request, obj)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """With what this user may change. What is posted is stored, unless whoever asked for the form says else."""
        form = super().get_form(request, obj, change=change, **kwargs)
        form.stores = request.method == "POST"  # type: ignore[attr-defined]
        form.may_change_strategy = request.user.has_perm("aegis_scheduler.change_strategy")  # type: ignore[attr-defined]
        return form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Whoever may only view reads instants in UTC, as whoever edits, and arguments where permitted."""
        found = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return found
        hidden = () if private.may_see(request.user) else ARGUMENTS
        return [
            (title, {**options, "fields": _read(name for name in options["fields"] if name != hidden)})
            for title, options in found
        ]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if request.method == "POST" and "_preview" in request.POST:
            return self._previewed(request, object_id, form_url)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def _previewed(self, request: HttpRequest, object_id: str | None, form_url: str) -> HttpResponse:
        """The form as it was filled in, with its errors and the next runs; nothing is stored."""
        obj, form = self._filled_in(request, object_id)
        admin_form = helpers.AdminForm(form, [*self.get_fieldsets(request, obj)], {}, model_admin=self)
        context = {
            **self.admin_site.each_context(request),
            "title": "Change schedule" if obj else "Add schedule",
            "adminform": admin_form,
            "errors": helpers.AdminErrorList(form, []),
            "inline_admin_formsets": [],
            "media": self.media + admin_form.media,
            "object_id": object_id,
            "original": obj,
            "is_popup": False,
            "preserved_filters": self.get_preserved_filters(request),
        }
        return self.render_change_form(
            request, context, add=obj is None, change=obj is not None, obj=obj, form_url=form_url
        )

    def _filled_in(self, request: HttpRequest, object_id: str | None) -> tuple[Schedule | None, ScheduleForm]:
        """The form that would save, validated and not saved."""
        obj = self.get_object(request, object_id) if object_id else None
        if object_id and obj is None:
            raise Http404(f"There is no schedule {object_id}.")
        if not (self.has_change_permission(request, obj) if obj else self.has_add_permission(request)):
            raise PermissionDenied
        form: ScheduleForm = self.get_form(request, obj, change=obj is not None)(request.POST, instance=obj)
        form.stores = False
        form.full_clean()
        return obj, form

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view(self.preview_view), "aegis_scheduler_schedule_preview"
        return [
            path("preview/", view, name=name),
            path("<int:pk>/preview/", view, name="aegis_scheduler_schedule_preview_of"),
            *super().get_urls(),
        ]

    @method_decorator(require_POST)
    def preview_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """The parts of the form's page that follow from what is typed, by the code that validates on save."""
        _, form = self._filled_in(request, None if pk is None else str(pk))
        context = {**_following(form), "errors_of": form.errors, "has_change_permission": True}
        return TemplateResponse(request, "admin/aegis_scheduler/schedule/_preview.html", context)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        form = context["adminform"].form
        if isinstance(form, ScheduleForm):
            obj = kwargs.get("obj")
            context |= _following(form)
            context["preview_url"] = self.path_to("preview_of", obj.pk) if obj else self.path_to("preview")
        return super().render_change_form(request, context, *args, **kwargs)


def _read(fields: Any) -> tuple[Any, ...]:
    """A fieldset's fields and rows of fields, as they are read and not edited."""
    return tuple(
        _read(field) if isinstance(field, tuple) else instant(field) if field in INSTANTS else field
        for field in fields
    )


def _following(form: ScheduleForm) -> dict[str, Any]:
    """What follows from the values in the form."""
    return {
        "next_runs": form.preview(),
        "surprises": form.surprises(),
        "jitter": form.jitter(),
        "recurrence": form.recurrence(),
        "advice": form.advice(),
        "chosen_alias": form.alias(),
        "strategy_lines": lines(),
    }
