"""The Celery application: `celery -A aegis_site worker`, `celery -A aegis_site beat`."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "aegis_site.settings")

app = Celery("aegis_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
