"""django-celery-beat's pages, taken over as the setting says: its admin is loaded first."""

from __future__ import annotations

from importlib import import_module

from django.apps import apps

from scheduler.beat_admin import APP, take_over

if apps.is_installed(APP):
    import_module(f"{APP}.admin")
    take_over()
