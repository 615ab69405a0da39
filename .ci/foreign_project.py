"""Somebody else's Django project with the wheel installed: are templates, files and migrations found?"""

from __future__ import annotations

import sys
from pathlib import Path

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for this check",  # noqa: S106
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}},
    LOCKS={"default": {"BACKEND": "locks.backends.database.DatabaseLeaseBackend", "TTL": 10}},
    CELERY_BEAT_SCHEDULER="scheduler.beat:CatalogScheduler",
    # Celery's own choice of a broker is RabbitMQ, of which W003 asks this.
    CELERY_BROKER_TRANSPORT_OPTIONS={"read_timeout": 3, "write_timeout": 3, "confirm_publish": True},
    INSTALLED_APPS=[
        "scheduler",
        "locks",
        "django_celery_beat",
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.staticfiles",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    STATIC_URL="static/",
    USE_TZ=True,
)
django.setup()

from celery import Celery  # noqa: E402
from celery.utils.imports import load_extension_class_names, symbol_by_name  # noqa: E402
from django.contrib.staticfiles import finders  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db.migrations.loader import MigrationLoader  # noqa: E402
from django.template.loader import get_template  # noqa: E402

import locks  # noqa: E402
import scheduler  # noqa: E402

site_packages = Path(sys.prefix).resolve()
for package in (locks, scheduler):
    found = Path(package.__file__).resolve()
    assert site_packages in found.parents, f"{found} is not the installed package"
    assert found.with_name("py.typed").is_file(), f"a type checker ignores the types of {package.__name__}"

templates = Path(scheduler.__file__).parent / "templates"
names = sorted(str(path.relative_to(templates)) for path in templates.rglob("*.html"))
assert names, "the wheel carries no templates"
for name in names:
    origin = get_template(name).origin.name
    assert site_packages in Path(origin).resolve().parents, f"{name} comes from {origin}"

static = Path(scheduler.__file__).parent / "static"
files = sorted(str(path.relative_to(static)) for path in static.rglob("*") if path.is_file())
assert files, "the wheel carries no static files"
for name in files:
    assert finders.find(name), f"{name} is not found"

loader = MigrationLoader(None)
for label in ("aegis_locks", "aegis_scheduler"):
    assert any(app == label for app, _ in loader.disk_migrations), f"no migrations of {label}"

beats = dict(load_extension_class_names("celery.beat_schedulers"))
assert symbol_by_name("aegis", aliases=beats).__module__ == "scheduler.beat", f"beat -S aegis finds {beats}"

app = Celery("foreign")
app.config_from_object("django.conf:settings", namespace="CELERY")
call_command("check", fail_level="WARNING", tags=["aegis"])
call_command("check")
sys.stdout.write(f"the wheel works: {len(names)} templates, {len(files)} static files, migrations of both apps\n")
