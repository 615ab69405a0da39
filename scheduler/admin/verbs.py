"""Verbs: what an operator does to one or several schedules, each behind a page that says first what will happen.

The list's actions and the buttons of a schedule's page lead to the same page. Nothing is done by a GET; a POST checks
the permission anew, does each schedule by itself, and says what was done and what was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from scheduler.changes import Refused
from scheduler.dashboard import dialog
from scheduler.dashboard.params import Link
from scheduler.exceptions import LedgerUnavailable
from scheduler.limits import TooOften
from scheduler.models import Schedule

MOST = 200  # schedules at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One schedule and what the verb will do to it. ``warnings`` are what may surprise; ``refused`` says why not."""

    schedule: Schedule
    said: str
    warnings: tuple[str, ...] = ()
    refused: str = ""


class Verb:
    """One verb. Subclasses say what it asks for, what it will do, and do it."""

    name: ClassVar[str]  # in the address
    permission: ClassVar[str]
    label: ClassVar[str]  # of the list's action
    form: ClassVar[type[forms.Form]]
    template: ClassVar[str] = "scheduler/verb.html"
    notes: ClassVar[tuple[str, ...]] = ()
    head: ClassVar[str] = "Now"  # of the second column

    def title(self, schedules: Sequence[Schedule]) -> str:
        """The page's heading."""
        raise NotImplementedError

    def button(self, schedules: Sequence[Schedule]) -> str:
        """What the button says."""
        return self.title(schedules)

    def make_form(self, request: HttpRequest, schedules: Sequence[Schedule]) -> forms.Form:
        """Bound on POST."""
        return self.form(request.POST if request.method == "POST" else None)

    def rows(self, schedules: Sequence[Schedule], request: HttpRequest) -> list[Row]:
        """What will happen to each."""
        raise NotImplementedError

    def context(self, schedules: Sequence[Schedule], request: HttpRequest) -> dict[str, Any]:
        """More for the template."""
        return {}

    def act(self, schedule: Schedule, given: dict[str, Any], request: HttpRequest) -> str:
        """Do it; returns a line for Django's log. Raises ``Refused``."""
        raise NotImplementedError

    def told(self, done: Sequence[str]) -> str:
        """What was done; ``done``: the log's lines, one for each schedule."""
        raise NotImplementedError

    def after(self, pages: VerbsMixin, schedules: Sequence[Schedule], done: Sequence[str]) -> str:
        """Where to go next instead of the schedule's page or the list; ``done``: the log's lines."""
        return ""


def names(schedules: Sequence[Schedule]) -> str:
    """One by its name, several by their number."""
    return schedules[0].name if len(schedules) == 1 else f"{len(schedules)} schedules"


class VerbsMixin(admin.ModelAdmin):
    """A page for each of ``verbs``, an action in the list for each, and the permission of each."""

    verbs: ClassVar[tuple[Verb, ...]] = ()

    def get_urls(self) -> list[URLPattern]:
        return [*(self._url_of(verb) for verb in self.verbs), *super().get_urls()]

    def _url_of(self, verb: Verb) -> URLPattern:
        @transaction.non_atomic_requests
        def view(request: HttpRequest) -> HttpResponse:
            return self.verb_view(request, verb)

        return path(f"{verb.name}/", self.admin_site.admin_view(view), name=f"aegis_scheduler_schedule_{verb.name}")

    def path_to(self, view: str, *args: Any, **query: Any) -> str:
        """The path of a page of schedules on this site."""
        found = reverse(f"admin:aegis_scheduler_schedule_{view}", args=args, current_app=self.admin_site.name)
        return f"{found}?{urlencode(query, doseq=True)}" if query else found

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Those of the verbs that this user may use, in the order of the verbs, before Django's."""
        own = {
            f"{verb.name}_selected": (self._action_of(verb), f"{verb.name}_selected", verb.label)
            for verb in self.verbs
            if request.user.has_perm(f"aegis_scheduler.{verb.permission}")
        }
        return {**own, **super().get_actions(request)}

    def _action_of(self, verb: Verb) -> Any:
        def act(model_admin: Any, request: HttpRequest, queryset: QuerySet[Schedule]) -> HttpResponse:
            ids = list(queryset.order_by("name").values_list("pk", flat=True)[: MOST + 1])
            return HttpResponseRedirect(self.path_to(verb.name, schedule=ids))

        return act

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def verb_view(self, request: HttpRequest, verb: Verb) -> HttpResponse:
        """Asks; does it on a valid POST."""
        if not (self.has_view_permission(request) and request.user.has_perm(f"aegis_scheduler.{verb.permission}")):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        ids = [text for text in given.getlist("schedule") if text.isascii() and text.isdigit() and len(text) < 19]
        schedules = list(Schedule.objects.filter(pk__in=ids[: MOST + 1]).select_related("lock").order_by("name"))
        if not schedules or len(schedules) > MOST:
            told = f"Choose at most {MOST} at once." if schedules else "Choose the schedules first."
            self.message_user(request, told, messages.WARNING)
            return HttpResponseRedirect(self.path_to("changelist"))
        form = verb.make_form(request, schedules)
        if form.is_bound and form.is_valid():
            return self._act(request, verb, schedules, form)
        return self._ask(request, verb, schedules, form)

    def _act(self, request: HttpRequest, verb: Verb, schedules: list[Schedule], form: forms.Form) -> HttpResponse:
        """One schedule after the other; a refusal is told and stops no other."""
        done, too_often = [], False
        for schedule in schedules:
            try:
                said = verb.act(schedule, form.cleaned_data, request)
            except (Refused, LedgerUnavailable, Schedule.DoesNotExist) as refusal:
                too_often = too_often or isinstance(refusal, TooOften)
                if len(schedules) == 1:
                    form.add_error(None, str(refusal))
                    return self._ask(request, verb, schedules, form, status=429 if too_often else 200)
                self.message_user(request, f"Schedule {schedule.name!r}: {refusal}", messages.ERROR)
            else:
                done.append(said)
                self.log_change(request, schedule, said)
        if done:
            self.message_user(request, verb.told(done), messages.SUCCESS)
        following = verb.after(self, schedules, done)
        page = self.path_to("page", schedules[0].pk) if len(schedules) == 1 else self.path_to("changelist")
        return HttpResponseRedirect(following or page)

    def _ask(
        self, request: HttpRequest, verb: Verb, schedules: list[Schedule], form: forms.Form, status: int = 200
    ) -> HttpResponse:
        return dialog.render(
            self,
            request,
            verb.template,
            status,
            title=verb.title(schedules),
            crumbs=self.crumbs(schedules),
            verb=verb,
            button=verb.button(schedules),
            rows=verb.rows(schedules, request),
            form=form,
            schedules=schedules,
            action_url=self.path_to(verb.name),
            back_url=self.path_to("page", schedules[0].pk) if len(schedules) == 1 else self.path_to("changelist"),
            **verb.context(schedules, request),
        )

    def crumbs(self, schedules: Sequence[Schedule]) -> list[Link]:
        """From the list down."""
        found = [Link(text="Schedules", url=self.path_to("changelist"))]
        if len(schedules) == 1:
            found.append(Link(text=schedules[0].name, url=self.path_to("page", schedules[0].pk)))
        return found


def counted(one: str, many: str, count: int) -> str:
    """``1 schedule was paused.``"""
    return ngettext(one, many, count) % {"n": count}
