"""A container's health check: `python -m aegis_site.alive beat` (or `worker`) exits 0 while it works.

A process that runs may still hang. Beats and workers stamp a row from the loop or thread that does their
work, so a fresh stamp says more than a process list; a database that is away makes every one of them
unhealthy, as it should.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta

import django

STAMPS_MISSED = 10  # in a row, before a process counts as stuck


def main(kind: str) -> str | None:
    """Return None when this host's process of that kind has stamped lately, else a sentence."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "aegis_site.settings")
    django.setup()

    from django.db.models.functions import Now

    from scheduler.conf import conf
    from scheduler.models import Instance

    seconds = conf("HEARTBEAT") * STAMPS_MISSED
    here = Instance.objects.filter(kind=kind, host=socket.gethostname(), stopped_at=None)
    fresh = here.filter(heartbeat_at__gt=Now() - timedelta(seconds=seconds))
    return None if fresh.exists() else f"no {kind} of {socket.gethostname()} has shown itself for {seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
