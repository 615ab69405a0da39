"""A lease that is a session of PostgreSQL: held if, and only if, that session lives.

One connection of its own for each lease, because a session's lock is re-entrant: two leases on one session
would not exclude each other. Nothing else ever uses it, Django and Celery do not know of it, and it is never
made again: a session that has ended is a lease that was lost, and a new session holds nothing. It serves one
lease and is closed with it, so that none is ever handed on unclean.

Who gives up first. The server ends a session when it hears of its end (the process died: at once), when somebody
ends it, or when the wire has been silent for too long. The last is bounded here for each lease: the server is
told to give up no sooner than ``ttl`` after it last heard of this client, and soon after that. The holder trusts
its lease until ttl - margin after it *asked* for the last answer that it got, which is earlier:

    t0          "are you there?" is sent; the server hears it at t0 or later, and answers
    t0 + ttl/3  asked again; no answer, so the lease is kept but not prolonged
    t0 + ttl - margin   the holder stops believing
    t0 + ttl    the earliest moment at which the server can give the session up because of silence

Not covered: a session that somebody ends (an operator, a restart, a time-out for idle sessions) is noticed at
the next renewal, a third of the ttl later at most, and another may hold the name until then. And a *frozen*
process is not silent: its kernel goes on answering for it. Its lock stands until it is thawed or killed; nobody
overlaps with it, and nobody gets in.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.generators import execute as finish_exchange
from psycopg.pq import TransactionStatus

from .. import connection
from ..clock import boottime
from .base import Grant

NAMED = "aegis "
"""What stands before the lease id in ``application_name``: every role that may see the session sees whose it is."""

# In: the process that was announced, app, and for how long the server bears with silence. Out: the process that
# serves this session. Nothing is set on the session of a pooler, which will be somebody else's.
# On a Unix socket the tcp_ settings are ignored: there is no wire, and the death of either side is told at once.
SAY = """
SELECT pg_backend_pid(), CASE WHEN pg_backend_pid() = %(pid)s THEN ARRAY[
    set_config('application_name', %(app)s, false),
    set_config('tcp_user_timeout', %(silence)s, false),
    set_config('tcp_keepalives_idle', %(idle)s, false),
    set_config('tcp_keepalives_interval', %(interval)s, false),
    set_config('tcp_keepalives_count', %(count)s, false)] END
"""

# A statement whose client has died is ended within half a second instead of at its own end. lock_timeout is off,
# because its error is the same as that of NOWAIT: only a lock that is held may look like one.
SETTINGS = {"client_connection_check_interval": "500", "lock_timeout": "0"}


class Key(NamedTuple):
    """A lease as its process knows it: the kind of lock, the database, the stored name and the id."""

    kind: str
    using: str
    name: str
    lease_id: UUID


class Session:
    """One connection that holds one lease, or asks for it. Any thread may use it; one at a time does."""

    def __init__(self, using: str, lease_id: UUID, ttl: float) -> None:
        self.ttl = ttl
        self.grant: Grant | None = None
        self.app = f"{NAMED}{lease_id}"
        self._lock = threading.Lock()
        self.connection = connection.connect(using, settings=SETTINGS, prepare_threshold=None)
        self.pid: int = self.connection.info.backend_pid
        """The process of the server, as it was announced."""
        _process.sessions.add(self)
        try:
            self.served_by: int = self.execute(SAY, self._say())[0][0]
        except BaseException:
            self.close()
            raise

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> connection.Rows:
        """Run one statement while the lease is being acquired. After any error the caller closes the session."""
        with self._lock:
            self.connection.give_up_at = boottime() + connection.ANSWER_TIMEOUT
            self.connection.warnings.clear()
            cursor = self.connection.execute(sql, params)
            rows = cursor.fetchall() if cursor.description else []
            if self.connection.warnings:
                raise connection.NotReplicated("; ".join(self.connection.warnings))
            return rows

    def stands(self, ttl: float, timeout: float) -> bool:
        """Whether this very session still answers; from then on the server bears with ``ttl`` s of silence.

        ``False``: it has ended, or another one answers in its place. Raises ``psycopg.Error`` when there is no
        answer within ``timeout`` seconds; ask again then, nothing is lost by asking.
        """
        self.ttl = max(self.ttl, ttl)
        rows = self._ask(SAY, timeout, self._say())
        if rows is not None and rows[0][0] == self.pid:
            return True
        self.close()
        return False

    def give_up(self, unlock: str) -> bool:
        """Send ``unlock``, and close the session whatever comes of it. Whether the lease stood until then.

        Unlocked first, because the server carries out the closing a little later: the next to ask would still
        find the name held. ``psycopg.Error``: unknown; the lock ends when the server learns that we left.
        """
        try:
            rows = self._ask(unlock, connection.ANSWER_TIMEOUT)
        finally:
            self.close()
        return rows is not None and (not rows or bool(rows[0][0]))

    def close(self) -> None:
        _process.sessions.discard(self)
        with self._lock:
            self.connection.close()

    def disown(self, null: int) -> None:
        """In a forked child: let go of the parent's session without a word to the server.

        The child's copy of the socket would keep the session alive after its parent has died. It is replaced
        and not closed, so that its number never comes to mean a file of the child's.
        """
        with contextlib.suppress(psycopg.OperationalError):  # closed already
            os.dup2(null, self.connection.fileno(), inheritable=False)

    def _ask(self, sql: str, timeout: float, params: Mapping[str, Any] | None = None) -> connection.Rows | None:
        """The answer, or ``None`` if the lock cannot stand any more. Raises ``psycopg.Error`` on no answer."""
        with self._lock:
            self.connection.give_up_at = boottime() + timeout
            try:
                self._finish_earlier_exchange()
                if self._status is TransactionStatus.INERROR:  # the transaction was aborted, and let go of its row
                    return None
                cursor = self.connection.execute(sql, params)
                return cursor.fetchall() if cursor.description else []
            except connection.NoAnswer:
                raise
            except psycopg.Error as error:
                if self._has_ended(error):
                    return None
                raise

    def _finish_earlier_exchange(self) -> None:
        """Read an answer that came too late for whoever asked. It proves nothing about now."""
        if self._status is TransactionStatus.ACTIVE:
            self.connection.wait(finish_exchange(self.connection.pgconn))

    def _has_ended(self, error: psycopg.Error) -> bool:
        fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
        return fatal or self._status in (TransactionStatus.UNKNOWN, TransactionStatus.INERROR)

    @property
    def _status(self) -> TransactionStatus:
        return self.connection.info.transaction_status

    def _say(self) -> dict[str, Any]:
        return {"pid": self.pid, "app": self.app, **patience(self.ttl)}


def patience(ttl: float) -> dict[str, str]:
    """The server's settings by which silence ends a session no sooner than ``ttl`` seconds after it was heard of.

    Where the server's system knows TCP_USER_TIMEOUT, that decides; the others alone would come to no less.
    """
    idle, interval = _whole(ttl / 3), _whole(ttl / 6)
    count = _whole((ttl - idle) / interval) + 1
    settings = {"silence": math.ceil(ttl * 1000), "idle": idle, "interval": interval, "count": count}
    return {name: str(value) for name, value in settings.items()}


def patience_ends(ttl: float) -> float:
    """Seconds after which a silent session is given up at the latest: a vanished machine's name is free then."""
    return ttl + 2 * _whole(ttl / 6)


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))


class _Process:
    """What belongs to one process, and must not be used by a forked child of it."""

    def __init__(self) -> None:
        self.sessions: set[Session] = set()
        self.held: dict[Key, Session] = {}
        self.doubtful: set[Key] = set()


_process = _Process()
_inherited: list[_Process] = []


def _after_fork() -> None:
    """Start afresh in a forked child: leases belong to the parent. Its objects stay referenced, untouched."""
    global _process
    _inherited.append(_process)
    null = os.open(os.devnull, os.O_RDWR)
    for session in list(_process.sessions):
        session.disown(null)
    os.close(null)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def keep(key: Key, session: Session) -> None:
    """Remember the session of a granted lease."""
    _process.held[key] = session


def find(key: Key) -> Session | None:
    """The session of a lease that this process holds."""
    return _process.held.get(key)


def forget(key: Key) -> Session | None:
    """The session of a lease that this process held until now."""
    return _process.held.pop(key, None)


def doubt(key: Key) -> None:
    """Remember that ``key`` may have been granted to a session that this process has left."""
    _process.doubtful.add(key)


def settle(key: Key) -> bool:
    """Whether there was such a doubt. It is forgotten."""
    if key not in _process.doubtful:
        return False
    _process.doubtful.discard(key)
    return True


def held_sessions() -> int:
    """How many sessions this process has, with those that are only asking."""
    return len(_process.sessions)
