"""Presence: a worker or beat process shows that it is alive and what it is, for people and the doctor to see."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Json

from locks.connection import execute
from scheduler import version
from scheduler.conf import conf
from scheduler.delivery import STAMP_VERSION

logger = logging.getLogger("aegis.presence")

_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_ARRIVE = f"""
INSERT INTO aegis_scheduler_instance
    (kind, name, host, pid, version, stamp_version, pool, concurrency, queues, started_at, heartbeat_at)
VALUES (%(kind)s, %(name)s, %(host)s, %(pid)s, %(version)s, %(stamp_version)s, %(pool)s, %(concurrency)s, %(queues)s,
    clock_timestamp(), clock_timestamp()) RETURNING {_CLOCK}, id
"""  # noqa: S608
_STAMP = f"""
UPDATE aegis_scheduler_instance
SET heartbeat_at = clock_timestamp(), clock_offset = %(offset)s, clock_error = %(error)s, queues = %(queues)s
WHERE id = %(id)s RETURNING {_CLOCK}
"""  # noqa: S608
_LEAVE = "UPDATE aegis_scheduler_instance SET stopped_at = clock_timestamp() WHERE id = %(id)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What a worker says of itself; the queues may change while it runs."""

    pool: str
    concurrency: int
    queues: tuple[str, ...]


class Presence:
    """One process in the fleet. A stamp that cannot be stored is logged; nothing depends on it.

    Each answer carries the database's clock, and so tells how far this process's is off, to half of the time that
    the exchange took. It is stored with the next stamp.
    """

    def __init__(self, kind: str, name: str = "", describe: Callable[[], Worker] | None = None) -> None:
        self.kind = kind
        self.name = name or f"{kind}@{socket.gethostname()}"
        self._describe = describe
        self._id: int | None = None
        self._offset: float | None = None
        self._error: float | None = None
        self._stop = threading.Event()

    def stamp(self) -> None:
        """Arrive at the first call, and again where the row was pruned; stamp the heartbeat otherwise."""
        worker = self._describe() if self._describe else None
        queues = Json(list(worker.queues)) if worker else None
        try:
            if self._id is not None:
                of_clock = {"offset": self._offset, "error": self._error}
                if self._ask(_STAMP, {"id": self._id, "queues": queues, **of_clock}):
                    return
            self._id = self._ask(_ARRIVE, {**self._who(worker), "queues": queues})[0][1]
        except psycopg.Error as trouble:
            logger.warning("%s could not show that it is alive: %s", self.name, type(trouble).__name__)

    def _who(self, worker: Worker | None) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version.VERSION,
            "stamp_version": STAMP_VERSION,
            "pool": worker.pool if worker else "",
            "concurrency": worker.concurrency if worker else None,
        }

    def _ask(self, sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement whose rows begin with the database's clock."""
        before = time.time()
        rows = execute(sql, parameters)
        after = time.time()
        if rows:
            self._offset = (before + after) / 2 - rows[0][0]
            self._error = (after - before) / 2
        return rows

    def leave(self) -> None:
        """Say that this process stopped on purpose."""
        self._stop.set()
        if self._id is None:
            return
        try:
            execute(_LEAVE, {"id": self._id})
        except psycopg.Error as trouble:
            logger.warning("%s could not say good-bye: %s", self.name, type(trouble).__name__)

    def stamp_in_background(self) -> None:
        """Stamp every heartbeat interval from a daemon thread, until ``leave()``."""
        threading.Thread(target=self._beat, name="aegis-presence", daemon=True).start()

    def _beat(self) -> None:
        self._stamp_or_log()
        while not self._stop.wait(conf("HEARTBEAT")):
            self._stamp_or_log()

    def _stamp_or_log(self) -> None:
        try:
            self.stamp()
        except Exception:  # whatever it was, the next stamp may succeed
            logger.exception("%s could not show that it is alive", self.name)
