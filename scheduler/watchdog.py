"""Hang up on a database that does not answer, so that a pass ends.

A beat works on Django's connection, whose waits have no bound of their own: a server that froze, or an answer that
got lost on the way, would hold the pass for ever, and with it every schedule. Time-outs of the system do not help
where the other end still acknowledges packets.

    beat                     network                 watchdog
    sends a statement
                             loses the answer
    waits ...                                        no progress for the patience: closes the socket
    OperationalError: this
    step is left out, the
    next pass connects anew
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from locks.clock import boottime
from locks.threads import running

logger = logging.getLogger("aegis.watchdog")

_LOOK_EVERY = 0.5  # seconds


@dataclass(slots=True, eq=False)
class _Watched:
    """A connection that one thread may be waiting for, and since when nothing came of it (boottime)."""

    wrapper: BaseDatabaseWrapper
    since: float

    def progress(self, execute: Callable[..., Any], *statement: Any) -> Any:
        self.since = boottime()
        try:
            return execute(*statement)
        finally:
            self.since = boottime()


class Watchdog:
    """Watches the default database's connections of all threads that are ``watching()``, from one thread of its own.

    ``patience``: seconds without progress.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        _bound_connecting(max(2, math.ceil(patience / 3)))  # libpq knows no less than two
        self._watched: set[_Watched] = set()
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Bound every wait for the database inside. What is cut short raises Django's ``OperationalError``."""
        watched = _Watched(connections[DEFAULT_DB_ALIAS], boottime())
        with self._changing:
            self._thread = running(self._thread, self._look, "aegis-watchdog")
            self._watched.add(watched)
        try:
            with watched.wrapper.execute_wrapper(watched.progress):
                yield
        finally:
            with self._changing:
                self._watched.remove(watched)

    def _look(self) -> None:
        pause = threading.Event()
        while not pause.wait(_LOOK_EVERY):
            with self._changing:
                late = [one for one in self._watched if boottime() - one.since >= self._patience]
            for one in late:
                one.since = boottime()
                self._hang_up(one.wrapper)

    def _hang_up(self, watched: BaseDatabaseWrapper) -> None:
        """Shut the socket down under the thread that waits for it. The connection object stays that thread's own."""
        raw = watched.connection
        if raw is None:  # it is being made, with a bound of its own
            return
        if raw.info.transaction_status is not TransactionStatus.ACTIVE:  # whoever is slow, it is not the database
            return
        logger.warning("no answer from the database for %.0f s: hanging up", self._patience)
        with contextlib.suppress(OSError, psycopg.Error):  # closed meanwhile
            duplicate = socket.socket(fileno=os.dup(raw.fileno()))
            with contextlib.closing(duplicate):
                duplicate.shutdown(socket.SHUT_RDWR)


def _bound_connecting(seconds: int) -> None:
    """In this process, unless the project says how long. While a connection is made there is nothing to hang up on,
    and psycopg alone would wait for over two minutes.
    """
    settings = connections[DEFAULT_DB_ALIAS].settings_dict
    if "PGCONNECT_TIMEOUT" not in os.environ:
        settings["OPTIONS"] = {"connect_timeout": seconds, **settings.get("OPTIONS", {})}
