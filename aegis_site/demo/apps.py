"""The Django app of the demo."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "aegis_site.demo"
    label = "aegis_demo"
    verbose_name = "Aegis demo"
    default_auto_field = "django.db.models.BigAutoField"
