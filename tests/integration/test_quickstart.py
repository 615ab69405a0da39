"""The quickstart, word for word: its files are written, its commands are run, its task runs on real processes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.models import Execution
from tests.support import CeleryProcesses, wait_until
from tests.support.processes import PROJECT, database_url

pytestmark = pytest.mark.django_db(transaction=True)

GUIDE = PROJECT / "docs" / "tutorial" / "quickstart.md"
BLOCK = re.compile(r"^`(?P<file>[\w/]+\.py)`(?P<end>, at the end)?:\n\n```python\n(?P<code>.*?)^```", re.M | re.S)
COMMAND = re.compile(r"^\$ (.+)$", re.M)

SETTINGS = """
from pathlib import Path
import os
import environ
BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = "only-for-this-test"
DATABASES = {"default": environ.Env.db_url_config(os.environ["DATABASE_URL"])}
_host = DATABASES["default"].get("OPTIONS", {}).pop("host", None)
if _host:
    DATABASES["default"]["HOST"] = _host
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "django.contrib.staticfiles", "django_celery_beat", "orders",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "DIRS": [os.environ["AEGIS_TEMPLATES"]],
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CELERY_BROKER_URL = os.environ["CELERY_BROKER_URL"]
"""
CELERY = """
import os
from celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project that knows nothing of Aegis yet."""
    root = tmp_path / "project"
    files = {
        "shop/__init__.py": "from shop.celery import app as celery_app\n",
        "shop/settings.py": SETTINGS,
        "shop/celery.py": CELERY,
        "shop/urls.py": "from django.contrib import admin\nfrom django.urls import path\n"
        "urlpatterns = [path('admin/', admin.site.urls)]\n",
        "orders/__init__.py": "",
        "manage.py": MANAGE,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def follow(shop: Path) -> None:
    """Write what the guide tells to write."""
    blocks = list(BLOCK.finditer(GUIDE.read_text()))
    assert [block["file"] for block in blocks] == ["shop/settings.py", "orders/tasks.py", "orders/schedules.py"]
    for block in blocks:
        path = shop / block["file"]
        path.write_text((path.read_text() + "\n" if block["end"] else "") + block["code"])


def environment(shop: Path) -> dict[str, str]:
    """Of a command in that project, on the database of the tests."""
    return {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONPATH": f"{shop}:{PROJECT}",
        "AEGIS_TEMPLATES": str(PROJECT / "templates"),
    }


def test_the_quickstart_leads_to_an_exclusive_run(shop: Path, celery_processes: CeleryProcesses) -> None:
    follow(shop)

    env = environment(shop)
    ran = []
    for command in COMMAND.findall(GUIDE.read_text()):
        words = shlex.split(command)
        if words[0] in ("pip", "make"):
            continue  # the wheel is installed and tried by `make try-wheel`
        if words[0] == "celery":
            name = words[-1]
            process = celery_processes.python(
                name, "-m", *words, *(["--pidfile="] if name == "beat" else []), "-l", "INFO",
                env={key: env[key] for key in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH", "AEGIS_TEMPLATES")},
            )  # fmt: skip
            said = "ready." if name == "worker" else "beat: Starting..."
            wait_until(
                lambda p=process, s=said: s in p.log.read_text(), timeout=60, message=f"{command} said {said!r}"
            )
        else:
            done = subprocess.run([sys.executable, *words[1:]], cwd=shop, env=env, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        ran.append(words[0])
    assert ran == ["python", "python", "celery", "celery", "python", "python"]
    wait_until(
        lambda: Execution.objects.filter(tick__schedule_name="reconcile-north", state="executed").count() >= 2,
        timeout=60,
        message="the schedule of the quickstart ran twice",
    )
    assert "settling batch 2 of north" in (celery_processes.logs / "worker.log").read_text()


def test_check_says_that_beats_own_app_is_missing(shop: Path) -> None:
    follow(shop)
    settings = shop / "shop" / "settings.py"
    settings.write_text(settings.read_text().replace('"django_celery_beat", ', ""))
    command = [sys.executable, "manage.py", "check"]
    done = subprocess.run(command, cwd=shop, env=environment(shop), capture_output=True, text=True)
    assert done.returncode == 1 and "aegis.scheduler.E015" in done.stderr, done.stdout + done.stderr
