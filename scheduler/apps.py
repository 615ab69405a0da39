"""The Django app of the schedule catalog."""

from __future__ import annotations

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """Label and tables carry ``aegis_``: "scheduler" is a common name for an app."""

    name = "scheduler"
    label = "aegis_scheduler"
    verbose_name = "Aegis"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from scheduler import celery_signals, checks, deleting, pools

        checks.register()
        pools.register()
        celery_signals.connect()
        deleting.connect()
