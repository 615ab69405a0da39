"""The site's settings, with the broker's visibility time-out where people put it and nothing reads it."""

from __future__ import annotations

from aegis_site.settings import *  # noqa: F403

BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 7200}
