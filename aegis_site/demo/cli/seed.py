"""``aegis seed``: store the demo's schedules, and an administrator."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand

from aegis_site.demo.catalog import seed
from locks import lock_backends

HELP = "Store the demo's schedules."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--admin", action="store_true", help="make an administrator and print the password once")


def run(command: BaseCommand, *, admin: bool, **options: Any) -> int:
    """Can be called again: schedules are put back as they were, an administrator who exists is left alone."""
    schedules = seed(set(lock_backends.aliases()))
    command.stderr.write(f"{len(schedules)} schedules stored: {', '.join(s.name for s in schedules)}")
    if admin and (password := make_admin()):
        command.stderr.write(f"dashboard: /admin/ user admin, password {password}")
    return 0


def make_admin(password: str | None = None) -> str | None:
    """Make the user ``admin``; returns the password, or None where the user existed and none was given."""
    users = get_user_model()._default_manager
    found = users.filter(username="admin").first()
    if found is not None and password is None:
        return None
    password = password or secrets.token_urlsafe(12)
    if found is None:
        users.create_superuser("admin", "admin@example.com", password)
    else:
        found.set_password(password)
        found.save(update_fields=["password"])
    return password
