"""A beat's look at the rules."""

from __future__ import annotations

import os
import socket

from scheduler.alerts.look import look
from scheduler.alerts.settings import alert_settings
from scheduler.aside import Aside
from scheduler.watchdog import Watchdog

IDLE = 15.0  # seconds until a beat that is not to look asks the setting again


def watch(watchdog: Watchdog) -> Aside:
    """Looks every EVERY seconds, where the setting says so."""
    name = f"beat@{socket.gethostname()} pid {os.getpid()}"
    return Aside(
        "alerts",
        lambda: look(name) if alert_settings().every else None,
        lambda: alert_settings().every or IDLE,
        watchdog=watchdog,
    )
