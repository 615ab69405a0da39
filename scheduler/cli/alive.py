"""``aegis alive``: a probe. A process that runs may still hang; a fresh stamp comes from what does its work."""

from __future__ import annotations

import socket
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models.functions import Now

from scheduler.cli._values import whole
from scheduler.models import Instance

HELP = "Tell whether the beat, or the worker, of this host has shown itself lately; for probes."

MOST = 86_400  # seconds


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=Instance.Kind.values)
    parser.add_argument("--within", type=whole(MOST), default=60, metavar="SECONDS", help="how lately (default 60)")


def run(command: BaseCommand, *, kind: str, within: int, **_: Any) -> int | None:
    """0: one has, and has not said good-bye since; 1: none has; 69: the database does not answer."""
    here = Instance.objects.filter(kind=kind, host=socket.gethostname(), stopped_at=None)
    if not here.filter(heartbeat_at__gt=Now() - timedelta(seconds=within)).exists():
        raise CommandError(f"no {kind} of {socket.gethostname()} has shown itself for {within} s", returncode=1)
    return None
