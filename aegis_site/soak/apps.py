"""The Django app of the soak."""

from __future__ import annotations

from django.apps import AppConfig


class SoakConfig(AppConfig):
    name = "aegis_site.soak"
    label = "aegis_soak"
    verbose_name = "Aegis soak"
    default_auto_field = "django.db.models.BigAutoField"
