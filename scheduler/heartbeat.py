"""Heartbeats: one thread per process stamps the executions that run in it.

A thread of its own, apart from the renewals of leases: a database that hangs must not delay the renewal of a
lease that lives in Redis. A heartbeat names execution ids, never "all of this process": a row whose start was
never confirmed must fall silent.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from locks.threads import running
from scheduler import ledger
from scheduler.conf import conf
from scheduler.exceptions import LedgerUnavailable

logger = logging.getLogger("aegis.heartbeat")


class Heart:
    """The beating thread of one process and the executions that it stamps."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._running: set[int] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, execution_id: int) -> None:
        with self._changed:
            self._thread = running(self._thread, self._beat, "aegis-heartbeat")
            self._running.add(execution_id)
            self._changed.notify()

    def remove(self, execution_id: int) -> None:
        with self._changed:
            self._running.discard(execution_id)
            self._changed.notify()

    def _beat(self) -> None:
        """Sleep while nothing runs; stamp every interval while anything does."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._running))
            while self._still_running():
                self._stamp()

    def _still_running(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=conf("HEARTBEAT"))
            return bool(self._running)

    def _stamp(self) -> None:
        with self._changed:
            ids = set(self._running)
        try:
            ledger.beat_hearts(ids)
        except LedgerUnavailable as trouble:
            logger.warning("heartbeats of %d executions not stored: %s", len(ids), trouble)
        except Exception:  # whatever it was, the next stamp may succeed
            logger.exception("heartbeats of %d executions not stored", len(ids))


_heart = Heart()


@contextmanager
def heartbeats(execution_id: int) -> Iterator[None]:
    """Stamp one execution as alive for as long as the block lasts."""
    global _heart
    if _heart.pid != os.getpid():
        _heart = Heart()
    heart = _heart
    heart.add(execution_id)
    try:
        yield
    finally:
        heart.remove(execution_id)
