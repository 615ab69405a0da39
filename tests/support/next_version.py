"""A worker of another version: ``python -m tests.support.next_version VERSION STAMP ARGUMENTS-OF-CELERY``."""

from __future__ import annotations

import os
import sys

from celery.bin.celery import main

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "aegis_site.settings")

from scheduler import presence, version

if __name__ == "__main__":
    version.VERSION = sys.argv[1]
    presence.STAMP_VERSION = int(sys.argv[2])
    sys.argv = ["celery", *sys.argv[3:]]
    main()
