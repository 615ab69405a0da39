"""What a beat does beside its passes, in a thread of its own: nothing slow there makes a tick late."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import Error as DatabaseError
from django.db import connection

from locks.threads import running
from scheduler.watchdog import Watchdog

logger = logging.getLogger("aegis.beat")


class Aside:
    """Does ``work`` again and again until ``stop()``, with ``every()`` seconds between. Trouble is logged; nothing
    depends on it. ``watchdog`` bounds what it waits for.
    """

    def __init__(
        self, name: str, work: Callable[[], object], every: Callable[[], float], *, watchdog: Watchdog
    ) -> None:
        self.name = name
        self._work = work
        self._every = every
        self._watchdog = watchdog
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, where it has not begun. Where that fails it is logged: call it again."""
        try:
            self._thread = running(self._thread, self._run, f"aegis-{self.name}")
        except RuntimeError as trouble:
            logger.warning("%s are left out: %s", self.name, trouble)

    def stop(self) -> None:
        """Begin no other round. One that is under way is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every()):
            try:
                with self._watchdog.watching():
                    self._work()
            except DatabaseError as trouble:
                logger.warning("%s are left out: %s", self.name, type(trouble).__name__)
            except Exception:
                logger.exception("%s are left out", self.name)
            finally:
                connection.close()
