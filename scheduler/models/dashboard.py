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
        verbose_name = "overview"
        verbose_name_plural = "overview"

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


class Strategies(Dashboard):
    """What each strategy did and cost."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "strategies"
        verbose_name_plural = "strategies"


class FailureMatrix(Dashboard):
    """What each strategy covers, and what of it was measured."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "failure matrix"
        verbose_name_plural = "failure matrix"


class Locks(Dashboard):
    """Who holds what now. Its permissions are of its own: a release can let a second run start."""

    class Meta:
        proxy = True
        default_permissions = ()
        permissions = [("view_lock", "Can view locks"), ("release_lock", "Can release a lock by force")]
        verbose_name = "locks"
        verbose_name_plural = "locks"


class Workers(Dashboard):
    """Beats and workers."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "workers and beats"
        verbose_name_plural = "workers and beats"
