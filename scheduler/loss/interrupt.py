"""``on_lost="interrupt"``: LeaseLost is raised in the main thread, in the middle of the body.

A real-time signal wakes the main thread; its handler raises, unless the thread is shut (``main_thread``). What is
lost while it is shut is raised when it opens, so no loss is forgotten. Without that an exception between COMMIT and
its answer would report effects as not done that are committed.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from locks import LeaseLost
from locks.keepalive import Kept
from scheduler.loss.main_thread import MainThread, is_this_thread, let_in, raise_losses
from scheduler.loss.reaction import Reaction

logger = logging.getLogger("aegis.loss")

T = TypeVar("T")

# The first two real-time signals belong to the C library; Celery and billiard use none. None: not on this system.
SIGNAL: int | None = getattr(signal, "SIGRTMIN", None) and int(signal.SIGRTMIN) + 3

_KNOCK_EVERY = 0.1  # seconds

# Seconds that asking the database to cancel an interrupted query may take.
_CANCEL = 1.0


class Interrupt(Reaction):
    """Raises ``LeaseLost`` in the body, once."""

    def __init__(self) -> None:
        self.raised = False
        self._error: LeaseLost | None = None
        self._inside = False
        self._commits = 0

    def lost(self, error: LeaseLost) -> None:
        self._error = error
        if self._inside:
            threading.Thread(target=self._knock, name="aegis-interrupt", daemon=True).start()

    def call(self, kept: Kept, body: Callable[[], T]) -> T:
        MainThread.bodies.append(self)
        try:
            self._inside = True
            return let_in(body)  # which raises first what was lost before, so that nobody knocked
        finally:
            self._inside = False
            MainThread.bodies.remove(self)
            if self.raised:
                connections.close_all()  # one may have been left in the middle of a query

    def committed(self, number: int) -> None:
        self._commits = number

    def stand_down(self) -> None:
        self._error = None
        self._inside = False

    def _knock(self) -> None:
        """Wake the main thread until it has heard.

        Once is not enough: a signal that comes after the interpreter has looked for one, and before the system call
        in which it sleeps, wakes nobody.
        """
        ident = threading.main_thread().ident
        while self._inside and not self.raised and ident is not None and SIGNAL is not None:
            signal.pthread_kill(ident, SIGNAL)
            time.sleep(_KNOCK_EVERY)

    def raise_if_lost(self) -> None:
        """Raise the loss if there is one that the body has not been told."""
        error = self._error
        if error is None or self.raised or not self._inside:
            return
        self.raised = True
        _cancel_queries()
        note = f" {self._commits} guarded transactions of this run are committed." if self._commits else ""
        raise LeaseLost(f"{error}{note}", name=error.name, alias=error.alias) from error


def unavailable() -> str:
    """Why this thread cannot be interrupted; empty where it can. Puts the handler up on the first call."""
    if SIGNAL is None:
        return "this system has no real-time signals"
    if not is_this_thread():
        return "the body does not run in the main thread (a threads pool, or a server with threads)"
    if _in_greenlet():
        return "the body runs in a greenlet (a gevent or eventlet pool)"
    if signal.getsignal(SIGNAL) not in (signal.SIG_DFL, _on_signal):
        return f"signal {SIGNAL} has a handler of somebody else's"
    try:
        signal.signal(SIGNAL, _on_signal)
    except ValueError:
        return "this interpreter may not handle signals"
    return ""


def _on_signal(number: int, frame: FrameType | None) -> None:
    raise_losses()


def _in_greenlet() -> bool:
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and greenlet.getcurrent().parent is not None


def _cancel_queries() -> None:
    """End what the main thread is waiting for in the database.

    Left alone it would go on at the server without anybody who listens: it would keep its row locks, and outside of
    a transaction commit, after the next holder has started.
    """
    for wrapper in connections.all(initialized_only=True):
        raw = wrapper.connection
        if isinstance(raw, psycopg.Connection) and raw.info.transaction_status is TransactionStatus.ACTIVE:
            with contextlib.suppress(psycopg.Error):
                raw.cancel_safe(timeout=_CANCEL)
