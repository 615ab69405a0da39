"""Real services for the whole session, and fixtures to disturb them and to run real workers on them.

Where no address of a store is set, PostgreSQL and Redis servers are started once, in a folder of this
session's own, and their addresses are in the environment before Django's settings are loaded. That is why
DJANGO_SETTINGS_MODULE is set here and not in pyproject.toml: pytest-django would load the settings before
any conftest is read. For the same reason a conftest.py of a sub-folder must not import models at its top; a
test module may.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from aegis_site.embedded import FolderInUse, Services
from aegis_site.stores import REQUIRED
from tests.support import CeleryProcesses
from tests.support.doors import FOLDER
from tests.support.forked import stop_fork_server

PROJECT = Path(__file__).resolve().parent.parent
SESSIONS_AT_ONCE = 20
QUICK_HASHER = "django.contrib.auth.hashers.MD5PasswordHasher"  # hundreds of users are made, half a second each

# How long an example takes says how busy the machine is.
hypothesis_settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("busy")

services_key = pytest.StashKey[Services | None]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.help or config.option.version:
        return
    for number in (signal.SIGTERM, signal.SIGHUP):  # end the session as Ctrl-C does, with its teardowns
        signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("SECRET_KEY", secrets.token_hex(32))
    if _only_hands_out(config):
        # Left by the import of the Celery app. Inherited, it would load the settings before the services start.
        os.environ.pop("DJANGO_SETTINGS_MODULE", None)
        return
    config.stash[services_key] = None if any(os.environ.get(name) for name in REQUIRED) else _start_services()
    os.environ["DJANGO_SETTINGS_MODULE"] = "aegis_site.settings"
    settings.PASSWORD_HASHERS = [QUICK_HASHER, *settings.PASSWORD_HASHERS]
    django.setup()


def _only_hands_out(config: pytest.Config) -> bool:
    """Whether this process gives the tests to others (`-n 2`), each of which starts services of its own."""
    return bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the tests, each gets as many of those that wait as of those that compute.

    Each process begins with a stretch of the list, and takes from the ends of others' later: tests that share a
    browser or a copy of the project stand at the beginning of one.
    """
    if hasattr(config, "workerinput"):
        folders = [(item, item.nodeid.split("/")[1]) for item in items]
        waiting = [item for item, folder in folders if folder == "concurrency"]
        together = [item for item, folder in folders if folder == "mutations"]
        others = [item for item, folder in folders if folder not in ("concurrency", "mutations")]
        half = len(others) // 2
        others[half:half] = together
        places = {id(item): (n + 0.5) / len(one) for one in (waiting, others) for n, item in enumerate(one)}
        items.sort(key=lambda item: places[id(item)])


def pytest_unconfigure(config: pytest.Config) -> None:
    stop_fork_server()
    services = config.stash.get(services_key, None)
    if services is not None:
        services.stop()


def _start_services() -> Services:
    """Start an instance in the first folder that no other session holds."""
    for number in range(1, SESSIONS_AT_ONCE + 1):
        folder = PROJECT / ".aegis" / f"tests-{number}"
        folder.parent.mkdir(exist_ok=True)
        services = Services(folder)
        try:
            services.start()
        except FolderInUse:
            continue
        os.environ.update(services.env())
        return services
    pytest.exit(f"{SESSIONS_AT_ONCE} test sessions run already in {PROJECT}: wait for one to end.", returncode=4)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """As in pytest-django; tables are emptied faster, and `locks` closes its connections before the database goes."""
    from django.test import TransactionTestCase

    from locks.connection import close_all

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TransactionTestCase, "_fixture_teardown", _empty_tables)
        yield
    close_all()


def _empty_tables(case: Any) -> None:
    from tests.support.emptying import empty_tables

    for alias in case._databases_names(include_mirrors=False):
        empty_tables(alias)


@pytest.fixture
def services(request: pytest.FixtureRequest) -> Iterator[Services]:
    """The session's services, to stop, kill or pause one; all of them run again when the test has ended."""
    services = request.config.stash[services_key]
    if services is None:
        pytest.skip("disturbs the stores, and those named in the environment are not ours to stop")
    yield services
    services.restore()


@pytest.fixture
def celery_processes(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CeleryProcesses]:
    """Start real workers and beats on the test database: `celery_processes.worker(...)`, `.beat(...)`.

    The broker is emptied first. The processes are stopped before the test's tables are emptied.
    """
    from aegis_site.celery import app

    with app.connection_for_write() as connection:
        connection.default_channel.client.flushdb()
    doors = tmp_path / "doors"
    doors.mkdir()
    monkeypatch.setenv(FOLDER, str(doors))
    processes = CeleryProcesses(tmp_path)
    yield processes
    processes.stop()
