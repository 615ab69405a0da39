"""The Django project around the two apps: settings, the Celery app, the demo and its embedded services."""

from __future__ import annotations

from aegis_site.celery import app as celery_app

__all__ = ["celery_app"]
