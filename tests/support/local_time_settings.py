"""The site's settings, with local times: what a system check refuses."""

from __future__ import annotations

from aegis_site.settings import *  # noqa: F403

USE_TZ = False
