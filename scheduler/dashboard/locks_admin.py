"""The locks page and the page that asks before a lease is released, registered in Django admin."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods

from locks import lock_backends
from locks.base import LeaseInfo, validate_name
from scheduler import held, releasing
from scheduler.changes import Refused
from scheduler.dashboard import dialog, locks_page
from scheduler.dashboard.header import header
from scheduler.dashboard.page import PageAdmin
from scheduler.models import Execution, LockRelease, Locks
from scheduler.models.lock_name import check_name


class ReleaseForm(dialog.ReasonForm):
    """What the operator saw, and that they looked. ``lease`` is what is compared."""

    alias = forms.CharField(max_length=100, widget=forms.HiddenInput)
    name = forms.CharField(max_length=200, widget=forms.HiddenInput, validators=[check_name])
    lease = forms.UUIDField(widget=forms.HiddenInput)
    checked = forms.BooleanField(
        label="I checked the worker",
        help_text="That it is gone, or that a second run beside it does no harm.",
        error_messages={"required": "Look at the worker first, then say so here."},
    )
    field_order = ("reason", "checked")

    def clean_alias(self) -> str:
        alias: str = self.cleaned_data["alias"]
        if alias not in lock_backends.aliases():
            raise forms.ValidationError(f'There is no strategy "{alias}" in LOCKS.')
        return alias


@admin.register(Locks)
class LocksAdmin(PageAdmin):
    """``view_lock`` to see it; ``release_lock`` as well to release."""

    permission = "aegis_scheduler.view_lock"
    template = "scheduler/locks.html"
    of_the_ledger = False  # the stores are asked

    def get_urls(self) -> list[URLPattern]:
        release = self.admin_site.admin_view(self.release_view)
        return [path("release/", release, name="aegis_scheduler_locks_release"), *super().get_urls()]

    def page(self, request: HttpRequest) -> dict[str, Any]:
        may = request.user.has_perm("aegis_scheduler.release_lock")
        shown = locks_page.context(held.locks(), self.path_of(Locks, "release") if may else "")
        return {"title": "Locks", "header": header(), "data_url": self.path_of(Locks, "data"), **shown}

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return locks_page.as_json(held.locks())

    @method_decorator([transaction.non_atomic_requests, require_http_methods(["GET", "HEAD", "POST"])])
    def release_view(self, request: HttpRequest) -> HttpResponse:
        """Asks, and on POST compares with the lease that was shown and releases."""
        dialog.refuse_without(request, "view_lock", "release_lock")
        form = ReleaseForm(request.POST) if request.method == "POST" else ReleaseForm(initial=_asked_for(request))
        if form.is_bound and form.is_valid():
            return self._release(request, form)
        return self._ask(request, form)

    def _release(self, request: HttpRequest, form: ReleaseForm) -> HttpResponse:
        given = form.cleaned_data
        try:
            seen = releasing.look(given["alias"], given["name"])
            row = releasing.release(
                given["alias"], given["name"], given["lease"], why=given["reason"], who=request.user, seen=seen
            )
        except Refused as refusal:
            form.add_error(None, str(refusal))
            return self._ask(request, form, status=429 if isinstance(refusal, releasing.TooOften) else 200)
        except releasing.StoreUnreachable:
            return self._ask(request, form)
        self.log_addition(request, row, f"Release by force: {row.get_result_display()}. {row.detail}")
        self._tell(request, row)
        return HttpResponseRedirect(self.path_of(Locks))

    def _tell(self, request: HttpRequest, row: LockRelease) -> None:
        result = row.result
        if result == LockRelease.Result.RELEASED:
            said, level = f"Released: {row.name} ({row.alias}), lease {row.lease_id}.", messages.SUCCESS
        elif result == LockRelease.Result.MOVED:
            said, level = f"Not released. {row.detail}.", messages.ERROR
        elif result == LockRelease.Result.FREE:
            said, level = f"Not released: {row.name} is free, the lease had ended by itself.", messages.WARNING
        else:
            said, level = f"It is not known whether {row.name} was released. {row.detail}", messages.ERROR
        self.message_user(request, said, level)

    def _ask(self, request: HttpRequest, form: ReleaseForm, status: int = 200) -> HttpResponse:
        wanted = form.data if form.is_bound else form.initial
        alias, name = str(wanted.get("alias") or ""), str(wanted.get("name") or "")
        info, trouble = _look(alias, name)
        lease = _uuid(wanted.get("lease"))
        return dialog.render(
            self,
            request,
            "scheduler/release.html",
            status,
            title=f"Release lock {name}" if name else "Release a lock",
            form=form,
            alias=alias,
            name=name,
            lease=lease,
            info=info,
            trouble=trouble,
            moved=info is not None and lease is not None and info.lease_id not in (None, lease),
            how=_how(alias, info),
            execution=_execution(info),
            now=header().now,
            locks_url=self.path_of(Locks),
            release_url=self.path_of(Locks, "release"),
        )


def _asked_for(request: HttpRequest) -> dict[str, Any]:
    return {name: request.GET.get(name, "") for name in ("alias", "name", "lease")}


def _look(alias: str, name: str) -> tuple[LeaseInfo | None, str]:
    """Who holds it now, and why that is not known."""
    try:
        validate_name(name)
        if alias not in lock_backends.aliases():
            return None, f'There is no strategy "{alias}" in LOCKS.'
        return releasing.look(alias, name), ""
    except ValueError as wrong:
        return None, str(wrong)
    except releasing.StoreUnreachable as why:
        return None, f"{alias}: unreachable, nothing is known of its locks ({why}). Nothing can be released now."


def _how(alias: str, info: LeaseInfo | None) -> str:
    """What releasing means for this strategy, where it is not just deleting a key."""
    if info is None or not lock_backends[alias].session_bound:
        return ""
    return releasing.SESSION_BOUND if info.lease_id else releasing.NAMELESS


def _execution(info: LeaseInfo | None) -> Execution | None:
    if info is None or info.lease_id is None:
        return None
    return Execution.objects.filter(lease_id=info.lease_id).select_related("tick").first()


def _uuid(text: Any) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None
