"""What the dashboard's pages hang on in Django admin: a permission and two names, no tables."""

from __future__ import annotations

from django.db import models


class NoRows(models.Manager["Dashboard"]):
    """Asks nothing: there is no table. `dumpdata`, which goes through every model, would fail without it."""

    def get_queryset(self) -> models.QuerySet[Dashboard]:
        return super().get_queryset().none()


class Dashboard(models.Model):
    """Carries ``view_dashboard``, without which no page of the dashboard is shown. It has no rows."""

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
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
