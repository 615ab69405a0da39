"""django-celery-beat's own pages in the admin: its actions ask for no permission, so that a viewer could run them.

AEGIS["BEAT_ADMIN"]: ``readonly`` (default) shows the rows and changes none, ``hide`` takes the pages away, ``keep``
leaves them as they are, which the checks warn of.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning

from locks.plain_lists import ReadOnlyList
from scheduler.conf import conf

APP = "django_celery_beat"
HIDE, READONLY, KEEP = CHOICES = ("hide", "readonly", "keep")

# Beat's own templates hold an inline script, which a strict Content-Security-Policy refuses.
_PLAIN: dict[str, Any] = {"change_form_template": None, "change_list_template": None}


class ReadOnly(ReadOnlyList):
    """In front of an admin class of another app: its pages can be read, and nothing else."""

    actions = None  # there is none, not even for a request that names one


def take_over(site: admin.AdminSite | None = None) -> None:
    """Put the setting into force on a site whose pages are registered; may be called again. Without beat: nothing."""
    wanted, site = conf("BEAT_ADMIN"), site or admin.site
    if wanted == KEEP or not apps.is_installed(APP):
        return
    for model in [model for model in site._registry if model._meta.app_label == APP]:
        theirs = type(site._registry[model])
        if issubclass(theirs, ReadOnly) and wanted != HIDE:
            continue
        site.unregister(model)
        if wanted != HIDE:
            site.register(model, type(theirs.__name__, (ReadOnly, theirs), _PLAIN))


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
                hint="Use 'readonly', or 'hide'.",
                id="aegis.scheduler.W009",
            )
        ]
    return []
