"""This package's own database connections: one autocommit psycopg connection per process, thread and Django
alias.

Why not Django's connection: a lease written inside the caller's transaction is invisible until that
transaction ends and is undone when it rolls back; Celery closes Django's connections around each task, so
that every run would pay for reconnecting; and an interrupted body can leave that connection unusable just
when its outcome must be recorded.

The connection is made on first use (so after a fork) from ``connections[alias].get_connection_params()``,
which means that the name of the test database and ``OPTIONS`` are honoured. Every statement is bounded
three times: the server gives up waiting for a row lock after ``LOCK_TIMEOUT``, gives up the statement after
``STATEMENT_TIMEOUT``, and the client stops waiting for an answer after ``timeout``. Nothing is ever sent
twice from here: after an error the caller does not know whether the statement ran, and only the caller
knows whether sending it again is harmless.

Behind PgBouncer add ``options`` to its ``ignore_startup_parameters``; the server's own time-outs then do
not apply.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from .clock import boottime

LOCK_TIMEOUT = 1.0  # seconds a statement waits for a row lock
STATEMENT_TIMEOUT = 3.0  # seconds a statement may take on the server
ANSWER_TIMEOUT = 5.0  # seconds the client waits for the answer, when the caller sets no other bound
CONNECT_TIMEOUT = 3  # whole seconds, as libpq counts them
_POLL = 0.05  # seconds between two looks at the clock while waiting for an answer

SESSION = {
    "lock_timeout": f"{int(LOCK_TIMEOUT * 1000)}",
    "statement_timeout": f"{int(STATEMENT_TIMEOUT * 1000)}",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read\\ committed",
}
"""Settings sent with the start-up message, so that they cost no round trip and survive ``RESET ALL``.

``synchronous_commit=on``: without it a crash of the server can forget a grant *and issue its token again*.
"""

_CLIENT: dict[str, Any] = {
    "application_name": "aegis",
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(ANSWER_TIMEOUT * 1000),
}

Rows = list[tuple[Any, ...]]


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time. The statement may have run."""


class NotReplicated(psycopg.OperationalError):
    """The server warned about the statement, which it does when it gave up waiting for its standby.

    Such a commit stands on this server and is lost with it: a grant that a failover may forget is none.
    """


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection that stops waiting at ``give_up_at`` (boottime seconds) instead of waiting for
    ever.

    ``statement_timeout`` cannot do this alone: it needs a server that is alive and reachable.
    """

    give_up_at: float | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.warnings: list[str] = []
        self.add_notice_handler(self._heed)

    def _heed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warnings.append(notice.message_primary or "warning without a text")

    def wait(self, gen: PQGen[RV], interval: float = _POLL, timeout: float | None = None) -> RV:
        if self.give_up_at is not None:
            gen = _until(self.give_up_at, gen)
        more = {} if timeout is None else {"timeout": timeout}  # which psycopg knows since 3.3
        return super().wait(gen, interval=min(interval, _POLL), **more)


def _until(give_up_at: float, gen: PQGen[RV]) -> PQGen[RV]:
    """Drive psycopg's generator ``gen``; raise ``NoAnswer`` once the clock has passed ``give_up_at``."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and boottime() >= give_up_at:
                raise NoAnswer("the database did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as done:
        result: RV = done.value
        return result


class _Slot:
    """The place of one thread's connection to one alias. The lock lets another thread close it."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.connection: BoundedConnection | None = None

    def execute(self, sql: str, params: Mapping[str, Any] | None, timeout: float) -> Rows:
        with self.lock:
            connection = self._live()
            connection.give_up_at = boottime() + timeout
            connection.warnings.clear()
            try:
                cursor = connection.execute(sql, params)
                rows = cursor.fetchall() if cursor.description else []
                if connection.warnings:
                    raise NotReplicated("; ".join(connection.warnings))
                return rows
            finally:
                # Also after an exception of ours raised by a signal handler in the middle of the exchange: a
                # connection that is not idle cannot be used again.
                if connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
                    self._drop()

    def close(self) -> None:
        with self.lock:
            self._drop()

    def _live(self) -> BoundedConnection:
        if self.connection is not None and _has_gone(self.connection):
            self._drop()
        if self.connection is None:
            self.connection = connect(self.using, **_CLIENT)
        return self.connection

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:  # the thread has ended
        if self.connection is not None and self.pid == os.getpid():
            self.connection.close()


def _has_gone(connection: BoundedConnection) -> bool:
    """Whether the server has hung up while the connection was idle.

    An idle connection has nothing to read, unless the server said good-bye. Seen before anything is sent,
    this needs no retry: after a restart of the database the first statement simply goes to a new
    connection.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def connect(using: str, *, settings: Mapping[str, str] | None = None, **ours: Any) -> BoundedConnection:
    """A new connection to the Django database ``using``, which nothing but the caller knows of.

    ``settings`` are added to the session's own (see ``SESSION``), ``ours`` are parameters of libpq and psycopg;
    ``OPTIONS`` of the database go before them. Raises ``psycopg.OperationalError``, and ``ImproperlyConfigured``
    if the database is no PostgreSQL.
    """
    wrapper = connections[using]
    if wrapper.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"DATABASES[{using!r}]['ENGINE'] is {wrapper.vendor!r}: locks in a database need PostgreSQL."
        )
    params: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT, **ours, **wrapper.get_connection_params()}
    params.pop("cursor_factory", None)
    session = " ".join(f"-c {name}={value}" for name, value in {**SESSION, **(settings or {})}.items())
    params["options"] = f"{params.get('options', '')} {session}".strip()
    return BoundedConnection.connect(autocommit=True, row_factory=tuple_row, **params)


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


def close_all(*, using: str | None = None) -> None:
    """Close all connections of this process (to ``using`` only), other threads' once they are idle."""
    with _process.lock:
        slots = [slot for slot in _process.slots if using in (None, slot.using)]
    for slot in slots:
        slot.close()


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
