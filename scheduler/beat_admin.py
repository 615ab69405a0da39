"""django-celery-beat's own pages in the admin: its actions ask for no permission, so that a viewer could run them.

AEGIS["BEAT_ADMIN"]: ``readonly`` (default) shows the rows and changes none, ``guarded`` leaves them to those who may
change them, ``hide`` takes the pages away, ``keep`` leaves them as they are, which the checks warn of.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.http import HttpRequest

from locks.plain_lists import PlainList, ReadOnlyList
from scheduler.conf import conf

APP = "django_celery_beat"
HIDE, READONLY, GUARDED, KEEP = CHOICES = ("hide", "readonly", "guarded", "keep")

# Beat's own templates hold an inline script, which a strict Content-Security-Policy refuses.
_PLAIN: dict[str, Any] = {"change_form_template": None, "change_list_template": None}


class ReadOnly(ReadOnlyList):
    """In front of an admin class of another app: its pages can be read, and nothing else."""

    actions = None  # there is none, not even for a request that names one


class Guarded(PlainList):
    """In front of an admin class of another app: an action that asks for no permission asks for that to change.

    Running a task is no more than a change: whoever may change a row may give it any task, and let it fire.
    """

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Also what a request may name: Django looks up the action to run in here."""
        found: dict[str, Any] = super().get_actions(request)
        if self.has_change_permission(request):
            return found
        return {name: action for name, action in found.items() if getattr(action[0], "allowed_permissions", ())}


_IN_FRONT: dict[str, type[PlainList]] = {READONLY: ReadOnly, GUARDED: Guarded}


def take_over(site: admin.AdminSite | None = None) -> None:
    """Put the setting into force on a site whose pages are registered; may be called again. Without beat: nothing."""
    wanted, site = conf("BEAT_ADMIN"), site or admin.site
    if wanted == KEEP or not apps.is_installed(APP):
        return
    for model in [model for model in site._registry if model._meta.app_label == APP]:
        theirs = type(site._registry[model])
        if issubclass(theirs, (ReadOnly, Guarded)) and wanted != HIDE:
            continue
        site.unregister(model)
        if wanted != HIDE:
            site.register(model, type(theirs.__name__, (_IN_FRONT.get(wanted, ReadOnly), theirs), _PLAIN))


def check_beat_admin(**kwargs: Any) -> list[CheckMessage]:
    """A known value; ``keep`` is warned of."""
    wanted = conf("BEAT_ADMIN")
    if wanted not in CHOICES:
        return [
            Error(
                f"AEGIS['BEAT_ADMIN'] is {wanted!r}.",
                hint=f"Choose one of {', '.join(CHOICES)}.",
                id="aegis.scheduler.E014",
            )
        ]
    if wanted == KEEP and apps.is_installed(APP):
        return [
            CheckWarning(
                "AEGIS['BEAT_ADMIN'] is 'keep': whoever may view a periodic task in django-celery-beat's admin can "
                "also enable, disable and run it.",
                hint="Use 'guarded', 'readonly' or 'hide'.",
                id="aegis.scheduler.W009",
            )
        ]
    return []
