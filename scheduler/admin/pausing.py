"""Pause and resume in the list of schedules: two actions, and the fields that they need beside the choice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import ngettext

from scheduler.changes import Refused
from scheduler.models import Schedule
from scheduler.pausing import pause, resume


class PauseForm(ActionForm):
    """Why, and until when; both are kept in the change history."""

    # Looked at by the actions: what the admin itself refuses here, it calls "No action selected".
    reason = forms.CharField(required=False, label="Reason")
    until = forms.CharField(required=False, label="Paused until (UTC)")


class PausingMixin(admin.ModelAdmin):
    """Two actions that go through ``scheduler.pausing``, each row by itself, behind a permission of their own."""

    action_form = PauseForm
    actions = ("pause_selected", "resume_selected")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("aegis_scheduler.pause_schedule")

    @admin.action(permissions=["pause"], description="Pause selected schedules")
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        try:
            with timezone.override(UTC):
                until = forms.DateTimeField(required=False).clean(request.POST.get("until", ""))
        except ValidationError:
            said = f"{request.POST['until']!r} is no date and time; write for example 2027-01-31 06:00."
            self.message_user(request, f"Nothing was paused. {said}", messages.ERROR)
            return
        why = request.POST.get("reason", "")
        self._each(request, queryset, "paused", lambda name: pause(name, why=why, until=until, who=request.user))

    @admin.action(permissions=["pause"], description="Resume selected schedules")
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        why = request.POST.get("reason", "")[:500]
        self._each(request, queryset, "resumed", lambda name: resume(name, why=why, who=request.user))

    def _each(
        self, request: HttpRequest, queryset: QuerySet[Schedule], done: str, verb: Callable[[str], Any]
    ) -> None:
        """One schedule after the other; a refusal is told and stops no other."""
        count = 0
        for name in queryset.order_by("name").values_list("name", flat=True):
            try:
                verb(name)
            except (Refused, Schedule.DoesNotExist) as refusal:
                self.message_user(request, f"Schedule {name!r}: {refusal}", messages.ERROR)
            else:
                count += 1
        if count:
            said = ngettext("%(n)d schedule was %(done)s.", "%(n)d schedules were %(done)s.", count)
            self.message_user(request, said % {"n": count, "done": done}, messages.SUCCESS)
