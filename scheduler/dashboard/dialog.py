"""Dialogs: pages that ask before something is done, and how they are rendered. A dialog is a page with a form."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from scheduler.charts.scale import duration_words


class ReasonForm(forms.Form):
    """Why something is done; kept on record."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off", "size": 60}),
        help_text="Kept on record with your name.",
        error_messages={
            "required": "Give a reason: whoever reads the record will ask for one.",
            "max_length": "At most %(limit_value)d characters are kept; this has %(show_value)d. Shorten it.",
        },
    )


class OptionalReasonForm(ReasonForm):
    """A reason is welcome, not asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = False
        self.fields["reason"].label = "Reason (optional)"


def render(
    site_admin: admin.ModelAdmin, request: HttpRequest, template: str, status: int = 200, **context: Any
) -> HttpResponse:
    """A page of the admin site outside of Django's own; ``title`` and ``crumbs`` are in the context."""
    request.current_app = site_admin.admin_site.name  # read by {% url %}
    shown = {**site_admin.admin_site.each_context(request), "opts": site_admin.opts, **context}
    return TemplateResponse(request, template, shown, status=status)


def refuse_without(request: HttpRequest, *permissions: str) -> None:
    """``admin_view`` lets every member of staff in. Raises ``PermissionDenied``."""
    if not all(request.user.has_perm(f"aegis_scheduler.{name}") for name in permissions):
        raise PermissionDenied


def ago(seconds: float | None) -> str:
    """``39 s ago``; nothing where there is nothing to say."""
    return "" if seconds is None else f"{duration_words(max(0.0, seconds))} ago"
