"""What the dashboard's pages hang on in Django admin: a permission and two names, no tables."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    """Carries ``view_dashboard``, without which no page of the dashboard is shown. It has no rows."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = [("view_dashboard", "Can view the dashboard")]
        verbose_name = "collisions"
        verbose_name_plural = "collisions"

    def __str__(self) -> str:
        return "the dashboard"


class Timeline(Dashboard):
    """The second page; a proxy, so that it stands in the admin's index beside the first."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "timeline"
        verbose_name_plural = "timeline"

    def __str__(self) -> str:
        return "the timeline"
