"""Presence: a worker or beat process shows that it is alive, for people to see."""

from __future__ import annotations

import logging
import os
import socket
import threading

import psycopg

from locks.connection import execute
from scheduler.conf import conf

logger = logging.getLogger("aegis.presence")

_ARRIVE = """
INSERT INTO aegis_scheduler_instance (kind, name, host, pid, started_at, heartbeat_at)
VALUES (%(kind)s, %(name)s, %(host)s, %(pid)s, clock_timestamp(), clock_timestamp()) RETURNING id
"""
_STAMP = "UPDATE aegis_scheduler_instance SET heartbeat_at = clock_timestamp() WHERE id = %(id)s RETURNING id"
_LEAVE = "UPDATE aegis_scheduler_instance SET stopped_at = clock_timestamp() WHERE id = %(id)s"


class Presence:
    """One process in the fleet. A stamp that cannot be stored is logged; nothing depends on it."""

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name or f"{kind}@{socket.gethostname()}"
        self._id: int | None = None
        self._stop = threading.Event()

    def stamp(self) -> None:
        """Arrive at the first call, and again where the row was pruned; stamp the heartbeat otherwise."""
        try:
            if self._id is not None and execute(_STAMP, {"id": self._id}):
                return
            who = {"kind": self.kind, "name": self.name, "host": socket.gethostname(), "pid": os.getpid()}
            self._id = execute(_ARRIVE, who)[0][0]
        except psycopg.Error as trouble:
            logger.warning("%s could not show that it is alive: %s", self.name, type(trouble).__name__)

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
        self.stamp()
        while not self._stop.wait(conf("HEARTBEAT")):
            self.stamp()
