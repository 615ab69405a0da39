"""The pages of alerts in Django admin: the list, one alert, the rules and a test of the channels."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods, require_POST

from scheduler.alerts import handling
from scheduler.alerts.channels import channels
from scheduler.alerts.trial import send_test
from scheduler.changes import Refused
from scheduler.dashboard import alerts_page, dialog
from scheduler.dashboard.header import header
from scheduler.dashboard.page import PageAdmin
from scheduler.limits import TooOften
from scheduler.models import Alert

MUTES = {"1h": ("1 hour", 1), "8h": ("8 hours", 8), "24h": ("1 day", 24), "7d": ("7 days", 168)}
_ASK = {"required": "Write a note: whoever looks next will want to know."}


class NoteForm(forms.Form):
    note = forms.CharField(
        max_length=500, widget=forms.TextInput(attrs={"size": 60, "autocomplete": "off"}), error_messages=_ASK
    )


class MuteForm(NoteForm):
    until = forms.ChoiceField(label="Mute for", choices=[(key, words) for key, (words, _) in MUTES.items()])


class RuleForm(forms.Form):
    """How one rule is set; its labels name the rule, because the table's head cannot be a label."""

    enabled = forms.BooleanField(required=False)
    threshold = forms.FloatField(required=False, min_value=0)
    shown = forms.CharField(required=False, widget=forms.HiddenInput(attrs={"autocomplete": "off"}))

    def __init__(self, one: dict[str, Any], data: Any = None) -> None:
        rule = one["rule"]
        initial = {"enabled": one["enabled"], "threshold": one["threshold"]}
        initial["shown"] = handling.setting(**initial)
        super().__init__(data, prefix=rule.key, initial=initial)
        self.fields["enabled"].widget.attrs["aria-label"] = f"{rule.title}: on"
        shown = {"aria-label": f"{rule.title}: from", "placeholder": f"{rule.threshold:g}"}
        self.fields["threshold"].widget.attrs.update(shown)


@admin.register(Alert)
class AlertAdmin(PageAdmin):
    """``view_alert`` to see them; ``change_alert`` to handle one, to set a rule and to send a test."""

    permission = "aegis_scheduler.view_alert"
    template = "scheduler/alerts.html"
    of_the_ledger = False  # looks and handling leave no trace in it

    def get_urls(self) -> list[URLPattern]:
        def of(view: Callable[..., HttpResponse], route: str, name: str) -> URLPattern:
            return path(route, self.admin_site.admin_view(view), name=f"aegis_scheduler_alert_{name}")

        return [
            of(self.rules_view, "rules/", "rules"),
            of(self.test_view, "rules/test/", "test"),
            of(self.alert_view, "<int:pk>/", "detail"),
            of(self.alert_view, "<int:pk>/change/", "change"),  # where the admin's own log links to
            *super().get_urls(),
        ]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("aegis_scheduler.change_alert")

    def page(self, request: HttpRequest) -> dict[str, Any]:
        strip = header()
        paths = self.path_of(Alert), self.path_of(Alert, "data")
        shown = alerts_page.context(request.GET.dict(), strip.now, *paths, self._url_of)
        return {
            "title": "Alerts",
            "header": strip,
            "rules_url": self.path_of(Alert, "rules"),
            **shown,
        }

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return alerts_page.as_json(request.GET.get("state", ""))

    def _url_of(self, pk: int) -> str:
        return reverse("admin:aegis_scheduler_alert_detail", args=[pk], current_app=self.admin_site.name)

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def alert_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One alert, what was sent of it, and what can be done; POST does one of them."""
        dialog.refuse_without(request, "view_alert")
        alert = Alert.objects.select_related("schedule").filter(pk=pk).first()
        if alert is None:
            raise Http404("There is no such alert.")
        forms_of = {"acknowledge": NoteForm, "mute": MuteForm, "reopen": NoteForm}
        chosen = request.POST.get("do", "")
        if request.method == "POST":
            dialog.refuse_without(request, "view_alert", "change_alert")
            if chosen in forms_of and (form := forms_of[chosen](request.POST, prefix=chosen)).is_valid():
                return self._handle(request, alert, chosen, form.cleaned_data)
        bound = {name: cls(request.POST if name == chosen else None, prefix=name) for name, cls in forms_of.items()}
        return self._render(
            request, "scheduler/alert.html", alert.subject,
            alert=alert, forms=bound,
            may=self.has_change_permission(request), row=alerts_page.row(alert, ""),
            deliveries=alert.deliveries.all()[:20],
        )  # fmt: skip

    def _handle(self, request: HttpRequest, alert: Alert, chosen: str, given: dict[str, Any]) -> HttpResponse:
        note = given["note"]
        try:
            if chosen == "mute":
                until = timezone.now() + timedelta(hours=MUTES[given["until"]][1])
                handling.mute(alert, until=until, note=note, who=request.user)
            elif chosen == "acknowledge":
                handling.acknowledge(alert, note=note, who=request.user)
            else:
                handling.reopen(alert, note=note, who=request.user)
        except Refused as refusal:
            self.message_user(request, f"Nothing was changed: {refusal}", messages.WARNING)
        else:
            done = {"mute": "muted", "acknowledge": "acknowledged", "reopen": "opened again"}[chosen]
            self.message_user(request, f"The alert is {done}.", messages.SUCCESS)
        return HttpResponseRedirect(self._url_of(alert.pk))

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def rules_view(self, request: HttpRequest) -> HttpResponse:
        """Every rule with its switch and threshold; POST stores all of them."""
        dialog.refuse_without(request, "view_alert")
        shown = alerts_page.rules()
        given = request.POST if request.method == "POST" else None
        for one in shown:
            one["form"] = RuleForm(one, given)
        if given is not None:
            dialog.refuse_without(request, "view_alert", "change_alert")
            if all(one["form"].is_valid() for one in shown):
                return self._store_rules(request, shown)
        return self._rules_page(request, shown)

    def _store_rules(self, request: HttpRequest, shown: list[dict[str, Any]]) -> HttpResponse:
        changed = []
        for one in shown:
            title = one["rule"].title
            try:
                if handling.set_rule(one["rule"].key, **one["form"].cleaned_data, who=request.user):
                    changed.append(title)
            except Refused as refusal:
                self.message_user(request, f"{title} was left as it is: {refusal}. Set it anew.", messages.WARNING)
        said = f"Changed: {', '.join(changed)}." if changed else "Nothing was changed."
        self.message_user(request, said, messages.SUCCESS)
        return HttpResponseRedirect(self.path_of(Alert, "rules"))

    @method_decorator(require_POST)
    def test_view(self, request: HttpRequest) -> HttpResponse:
        """Tell every channel, and show what each said."""
        dialog.refuse_without(request, "view_alert", "change_alert")
        shown = alerts_page.rules()
        for one in shown:
            one["form"] = RuleForm(one)
        try:
            return self._rules_page(request, shown, told=send_test(request.user))
        except TooOften as refusal:
            return self._rules_page(request, shown, 429, refused=str(refusal))

    def _rules_page(
        self, request: HttpRequest, shown: list[dict[str, Any]], status: int = 200, **context: Any
    ) -> HttpResponse:
        return self._render(
            request, "scheduler/alert_rules.html", "Rules and channels", status, shown=shown, channels=[*channels()],
            may=self.has_change_permission(request), test_url=self.path_of(Alert, "test"), **context,
        )  # fmt: skip

    def _render(
        self, request: HttpRequest, template: str, title: str, status: int = 200, **context: Any
    ) -> HttpResponse:
        crumbs = [{"text": "Alerts", "url": self.path_of(Alert)}]
        return dialog.render(
            self, request, template, status, title=title, crumbs=crumbs, alerts_url=crumbs[0]["url"], **context
        )
