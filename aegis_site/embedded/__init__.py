"""Real PostgreSQL and Redis servers for the demo and the tests, where no address of a store is set.

They are children of the process that starts them and end with it, whatever ends it. `manage.py aegis demo`
runs inside `ensure_services()`: when the command's code runs, DATABASE_URL and the other addresses are in
os.environ and the settings have been made from them, be they embedded ones or the user's own, so it only
has to pass its environment on to what it starts. `spawn()` starts such a process. Import nothing of Django
here: this code runs before the settings are loaded.
"""

from __future__ import annotations

from aegis_site.embedded.errors import EmbeddedError, FolderInUse
from aegis_site.embedded.processes import ChildProcess, spawn
from aegis_site.embedded.services import Services, ensure_services, own_services, wants_services

__all__ = [
    "ChildProcess",
    "EmbeddedError",
    "FolderInUse",
    "Services",
    "ensure_services",
    "own_services",
    "spawn",
    "wants_services",
]
