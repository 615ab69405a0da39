#!/usr/bin/env python
"""Run a management command; `aegis demo` gets embedded stores where none are configured."""

from __future__ import annotations

import os
import sys
from pathlib import Path

EX_UNAVAILABLE = 69  # sysexits.h: a service that the command needs is not there
EX_INTERRUPTED = 130  # as shells say it: 128 + SIGINT


def run_command() -> None:
    """Hand the command line to Django; a store that was never configured is told in one sentence."""
    from django.core.management import execute_from_command_line
    from django.db.utils import OperationalError

    try:
        execute_from_command_line(sys.argv)
    except OperationalError:
        from django.conf import settings

        if settings.STORES.configured:
            raise
        print(settings.STORES.remedy, file=sys.stderr)
        sys.exit(EX_UNAVAILABLE)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "aegis_site.settings")
    from aegis_site.embedded import EmbeddedError, ensure_services, wants_services

    if not wants_services(sys.argv[1:]):
        run_command()
        return
    try:
        with ensure_services(Path(__file__).resolve().parent):
            run_command()
    except EmbeddedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EX_UNAVAILABLE)
    except KeyboardInterrupt:
        print("Interrupted before there was a result; everything is stopped.", file=sys.stderr)
        sys.exit(EX_INTERRUPTED)


if __name__ == "__main__":
    main()
