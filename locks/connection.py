"""This package's own database connections: one autocommit psycopg connection per process, thread and Django
alias.

Why not Django's connection: a lease written inside the caller's transaction is invisible until that
transaction ends and is undone when it rolls back; Celery closes Django's connections around each task, so
that every run would pay for reconnecting; and an interrupted body can leave that connection unusable just
when its outcome must be recorded.

The connection is made on first use (so after a fork). Every wait on it is bounded, see ``bounded``. Nothing is
ever sent twice from here: after an error the caller does not know whether the statement ran, and only the caller
knows whether sending it again is harmless.

A statement that comes again and again is prepared, which saves the server parsing and planning it: more than half
of the time that a lease costs. Only where the connection is known to be a session of its own, see ``pooling``.
``OPTIONS["prepare_threshold"]`` of the database, if given, decides instead: ``None`` prepares nothing.

Behind PgBouncer add ``options`` to its ``ignore_startup_parameters``; the server's own time-outs then do
not apply.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections, transaction
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from . import pooling
from .bounded import STATEMENT_TIMEOUT, BoundedConnection, NoAnswer, NotReplicated, Rows, connect

__all__ = [
    "ANSWER_TIMEOUT",
    "STATEMENT_TIMEOUT",
    "BoundedConnection",
    "NoAnswer",
    "NotReplicated",
    "Rows",
    "also_close",
    "close_all",
    "connect",
    "execute",
    "is_routed",
    "renewal_timeout",
    "routed_to_django",
]  # fmt: skip

ANSWER_TIMEOUT = 5.0  # seconds the client waits for the answer, when the caller sets no other bound

_CLIENT: dict[str, Any] = {
    "application_name": "aegis",
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(ANSWER_TIMEOUT * 1000),
}

_IDLE = TransactionStatus.IDLE

# The server knows before it carries anything out that a prepared statement is missing, is not ours, or gives other
# columns than before a migration. The next call finds a new connection.
_UNPREPARED = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
    psycopg.errors.FeatureNotSupported,
)


class _Slot:
    """The place of one thread's connection to one alias. The lock lets another thread close it."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.connection: BoundedConnection | None = None

    def execute(self, sql: str, params: Mapping[str, Any] | None, timeout: float) -> Rows:
        with self.lock:
            connection = self.connection
            if connection is None or connection.has_gone():
                connection = self._connect(timeout)
            try:
                return connection.run(sql, params, timeout=timeout)
            except _UNPREPARED as error:
                self._drop()
                if not isinstance(error, psycopg.errors.FeatureNotSupported):
                    pooling.never_prepare(self.using)
                raise
            finally:
                # Also after an exception of ours raised by a signal handler in the middle of the exchange: a
                # connection that is not idle cannot be used again.
                if connection.pgconn.transaction_status != _IDLE:
                    self._drop()

    def close(self) -> None:
        with self.lock:
            self._drop()

    def _connect(self, timeout: float) -> BoundedConnection:
        self._drop()
        connection = self.connection = connect(self.using, **_CLIENT)
        try:
            connection.may_prepare = self._may_prepare(connection, timeout)
        except BaseException:
            self._drop()
            raise
        return connection

    def _may_prepare(self, connection: BoundedConnection, timeout: float) -> bool:
        try:
            return pooling.may_prepare(connection, self.using, timeout)
        except psycopg.Error:
            if connection.pgconn.transaction_status != _IDLE:
                raise
            return False  # another connection could not be made: then it is not known

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:  # the thread has ended
        if self.connection is not None and self.pid == os.getpid():
            self.connection.close()


class _Slots(threading.local):
    """Per thread: alias -> slot. The slots of a thread vanish with it."""

    def __init__(self) -> None:
        self.by_alias: dict[str, _Slot] = {}


class _Process:
    """Everything of this module that belongs to one process and must not be inherited by a forked child."""

    def __init__(self) -> None:
        self.local = _Slots()
        self.slots: weakref.WeakSet[_Slot] = weakref.WeakSet()
        self.lock = threading.Lock()
        self.routed_thread: int | None = None

    def slot(self, using: str) -> _Slot:
        slot = self.local.by_alias.get(using)
        if slot is None:
            slot = self.local.by_alias[using] = _Slot(using)
            with self.lock:
                self.slots.add(slot)
        return slot


_process = _Process()
_inherited: list[_Process] = []


def _after_fork() -> None:
    """Start afresh in a forked child. The parent's sockets stay referenced and are never touched."""
    global _process
    _inherited.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def execute(
    sql: str,
    params: Mapping[str, Any] | None = None,
    *,
    using: str = "default",
    timeout: float = ANSWER_TIMEOUT,
) -> Rows:
    """Run one statement in its own transaction on this thread's connection and return its rows, ``[]`` if it
    has none.

    Parameters are named, ``%(name)s``. ``timeout`` bounds the wait for the answer, in seconds. Raises
    ``psycopg.Error``; whether the statement ran is then unknown unless the error is the server's own. A
    broken connection is dropped, so that the next call connects again. Never sends anything twice.
    """
    if _process.routed_thread is not None:
        return _execute_routed(sql, params, using)
    return _process.slot(using).execute(sql, params, timeout)


def renewal_timeout(ttl: float) -> float:
    """Seconds that a renewal waits for its answer. A part of the lease's ``ttl``, so that silence is asked again in
    time; and no more than for any other answer, because other leases wait for the thread that renews.
    """
    return min(ttl / 6, ANSWER_TIMEOUT)


def close_all(*, using: str | None = None) -> None:
    """Close all connections of this process (to ``using`` only), other threads' once they are idle."""
    with _process.lock:
        slots = [slot for slot in _process.slots if using in (None, slot.using)]
    for slot in slots:
        slot.close()
    for closing in _others:
        closing(using)


_others: list[Callable[[str | None], None]] = []


def also_close(closing: Callable[[str | None], None]) -> None:
    """Let ``close_all`` call ``closing`` too, with the database alias or ``None`` for all."""
    _others.append(closing)


def is_routed() -> bool:
    """Whether statements go to Django's own connection at present (see ``routed_to_django``)."""
    return _process.routed_thread is not None


@contextmanager
def routed_to_django() -> Iterator[None]:
    """For tests of user code only: run statements on Django's own connection of the calling thread.

    Inside a ``TestCase`` nothing is ever committed. A connection of our own would see none of the rows the
    test made, and would wait for a lock on those both want. Here everything shares the test's transaction
    instead, and the locks taken in it are rolled back with it. Only one thread can do that, so leases are
    not renewed in the background meanwhile: a test that needs real concurrency uses ``TransactionTestCase``
    and no routing.
    """
    before, _process.routed_thread = _process.routed_thread, threading.get_ident()
    try:
        yield
    finally:
        _process.routed_thread = before


def _execute_routed(sql: str, params: Mapping[str, Any] | None, using: str) -> Rows:
    if _process.routed_thread != threading.get_ident():
        raise psycopg.OperationalError("lease statements are routed to another thread's test connection")
    wrapper = connections[using]
    # Django's block and not psycopg's: where the test has sent nothing yet, the server knows of no transaction, and
    # psycopg would begin and commit one of its own.
    with transaction.atomic(using=using), wrapper.connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []
