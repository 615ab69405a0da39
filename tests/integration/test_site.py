"""The site's own pages, and what `check --deploy` thinks of the production settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from aegis_site.csp import POLICY
from aegis_site.embedded import Services

PROJECT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.django_db
def test_the_start_page_is_the_admin(client: Client) -> None:
    response = client.get("/")
    assert (response.status_code, response["Location"]) == (302, "/admin/")


@pytest.mark.django_db
def test_every_page_carries_the_content_security_policy(client: Client) -> None:
    response = client.get("/admin/login/")
    assert response.status_code == 200
    assert response["Content-Security-Policy"] == POLICY


@pytest.mark.django_db
def test_the_health_check_names_each_store(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"database": "ok", "cache": "ok"})


@pytest.mark.faults
@pytest.mark.django_db
def test_the_site_works_without_its_cache(client: Client, admin_user: object, services: Services) -> None:
    services.redis["broker"].stop()
    client.force_login(admin_user)  # type: ignore[arg-type]
    assert client.get("/admin/").status_code == 200
    assert client.get("/healthz").json() == {"database": "ok", "cache": "unreachable"}


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code.split()],
        cwd=PROJECT,
        env={**os.environ, "PLAIN_HTTP": "false", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_production_settings_pass_the_deployment_checks() -> None:
    done = python("manage.py check --deploy --fail-level WARNING", DEBUG="false")
    assert done.returncode == 0, done.stderr


def test_plain_http_is_a_switch_that_the_deployment_checks_see() -> None:
    done = python("manage.py check --deploy --fail-level WARNING", PLAIN_HTTP="true")
    assert done.returncode != 0
    assert "SECURE_SSL_REDIRECT" in done.stderr


def test_a_deployment_must_bring_its_secret_key() -> None:
    done = python("manage.py check", SECRET_KEY="", AEGIS_EMBEDDED="")
    assert done.returncode != 0
    assert "SECRET_KEY: not set. Put a long random value into the environment" in done.stderr


def test_another_database_than_postgresql_is_refused_by_name() -> None:
    done = python("manage.py check", DATABASE_URL="sqlite:///hidden-name.db")
    assert done.returncode != 0
    assert "DATABASE_URL: its scheme is not postgres://" in done.stderr
    assert "hidden-name" not in done.stderr


def test_static_files_can_be_collected(tmp_path: Path) -> None:
    done = python("manage.py collectstatic --noinput", STATIC_ROOT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "staticfiles.json").exists()
