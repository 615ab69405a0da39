"""The thread of a beat that looks at the rules, so that neither a slow store nor a dead channel holds up a pass."""

from __future__ import annotations

import logging
import os
import socket
import threading

from django.db import Error as DatabaseError
from django.db import connection

from scheduler.alerts.look import look
from scheduler.alerts.settings import alert_settings

logger = logging.getLogger("aegis.alerts")

IDLE = 15.0  # seconds until a beat that is not to look asks the setting again


class Watch:
    """Looks every EVERY seconds until ``stop()``. Trouble is logged; nothing depends on it."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._name = f"beat@{socket.gethostname()} pid {os.getpid()}"

    def start(self) -> None:
        """Begin; once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="aegis-alerts", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Look no more. A look that is under way is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(alert_settings().every or IDLE):
            try:
                if alert_settings().every:
                    look(self._name)
            except DatabaseError as trouble:
                logger.warning("alerts are left out: %s", type(trouble).__name__)
            except Exception:
                logger.exception("alerts are left out")
            finally:
                connection.close()
