"""A lease that is a session of PostgreSQL: held if, and only if, that session lives.

One session for each lease, because a session's lock is re-entrant: two leases on one session would not exclude each
other. Nothing else ever uses it, Django and Celery do not know of it, and it is never made again: a session that
has ended is a lease that was lost, and a new session holds nothing. It is handed on to the next lease only if this
one was given back in good order, see ``session_registry``: the lock was ours until we unlocked it, nothing else is
held, no answer is owed, the server has no transaction open. Otherwise it is closed with its lease.

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
from functools import lru_cache
from typing import Any
from uuid import UUID

import psycopg
from psycopg.generators import execute as finish_exchange
from psycopg.pq import TransactionStatus

from .. import connection
from ..clock import boottime
from . import session_registry as registry
from .base import Grant

NAMED = "aegis "
"""What stands in ``application_name`` before the lease id and, where it has one, the number of its grant: every role
that may see the session sees whose it is.
"""

AT_REST = "aegis at rest"

DOOR = 1634035561
"""First half of the advisory lock of a session's name; the second is its process. Whoever ends the session of a lease
holds it from looking at the name until the session has gone, so that it serves no other lease by then.
"""

_SET = """set_config('application_name', %(app)s, false),
    set_config('tcp_user_timeout', %(silence)s, false),
    set_config('tcp_keepalives_idle', %(idle)s, false),
    set_config('tcp_keepalives_interval', %(interval)s, false),
    set_config('tcp_keepalives_count', %(count)s, false)"""

# In: the process that was announced, app, and for how long the server bears with silence. Out: the process that
# serves this session. Nothing is set on the session of a pooler, which will be somebody else's.
# On a Unix socket the tcp_ settings are ignored: there is no wire, and the death of either side is told at once.
SAY = f"SELECT pg_backend_pid(), CASE WHEN pg_backend_pid() = %(pid)s THEN ARRAY[{_SET}] END"

# For the statement that takes a lock, and before it does: the name of the lease. False: not our session, or somebody
# is about to end it. The parts of an AND are looked at one after the other. The door is shut again at the end of the
# statement, where that is a transaction of its own; in one that stays open at once, and there the name goes with it.
_BE_NAMED = (
    "(pg_backend_pid() = %(pid)s AND {open} AND set_config('application_name', %(app)s, {local}) IS NOT NULL{shut})"
)
BE_NAMED = _BE_NAMED.format(open=f"pg_try_advisory_xact_lock_shared({DOOR}, %(pid)s)", local="false", shut="")
BE_NAMED_IN_TRANSACTION = _BE_NAMED.format(
    open=f"pg_try_advisory_lock_shared({DOOR}, %(pid)s)", local="true",
    shut=f" AND pg_advisory_unlock_shared({DOOR}, %(pid)s)",
)  # fmt: skip

# A statement whose client has died is ended within half a second instead of at its own end. lock_timeout is off,
# because its error is the same as that of NOWAIT: only a lock that is held may look like one.
SETTINGS = {"client_connection_check_interval": "500", "lock_timeout": "0"}


class NotOurs(psycopg.OperationalError):
    """Another process of the server answers than the one that was announced, or the session is being ended, or may
    not write. Nothing was locked.
    """


class Session:
    """One connection that holds one lease, or asks for it. Any thread may use it; one at a time does."""

    def __init__(self, using: str, lease_id: UUID, ttl: float, kind: str = "") -> None:
        self.place = registry.place_of(kind, using, ttl)
        self.ttl = ttl
        self.made_at = boottime()
        self.cluster: tuple[str, ...] = ()  # what is known of it besides its address
        self._lock = threading.Lock()
        self.connection = connection.connect(
            using, settings=SETTINGS, application_name=AT_REST, prepare_threshold=None
        )
        self.pid: int = self.connection.info.backend_pid
        """The process of the server, as it was announced."""
        self.serve(lease_id)
        registry.add(self)
        try:
            say = {"pid": self.pid, "app": AT_REST, **patience(ttl)}
            self.served_by: int = self.execute(SAY, say)[0][0]
        except BaseException:
            self.close()
            raise

    def serve(self, lease_id: UUID) -> None:
        """From now on the session is for this lease. The server is told by ``BE_NAMED``."""
        self.lease_id: UUID | None = lease_id
        self.note = ""  # see ``session_notes``
        self.grant: Grant | None = None

    @property
    def named(self) -> dict[str, Any]:
        """The parameters of ``BE_NAMED``."""
        number = "" if self.grant is None or self.grant.number is None else f" {self.grant.number}"
        return {"pid": self.pid, "app": f"{NAMED}{self.lease_id}{number}"}

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> connection.Rows:
        """Run one statement while the lease is being acquired. After any error the caller closes the session."""
        with self._lock:
            return self.connection.run(sql, params, timeout=connection.ANSWER_TIMEOUT)

    def execute_together(self, sql: str, params: Mapping[str, Any]) -> list[connection.Rows]:
        """The same for several statements in one exchange."""
        with self._lock:
            return self.connection.run_together(self.note + sql, params, timeout=connection.ANSWER_TIMEOUT)

    def stands(self, lease_id: UUID, ttl: float, timeout: float) -> bool:
        """Whether this very session still answers; from then on the server bears with ``ttl`` s of silence.

        ``False``: it has ended, another one answers in its place, or it has gone on to another lease. Raises
        ``psycopg.Error`` when there is no answer within ``timeout`` seconds; ask again then, nothing is lost by it.
        """
        with self._lock:
            if self.lease_id != lease_id:
                return False
            self.ttl = max(self.ttl, ttl)
            rows = self._ask(SAY, timeout, {**self.named, **patience(self.ttl)})
        if rows is not None and rows[0][0] == self.pid:
            return True
        self.close()
        return False

    def give_up(self, unlock: str, params: Mapping[str, Any] | None = None) -> bool:
        """Send ``unlock``, after which nothing must be held. Whether the lease stood until then.

        The session rests if it did, else it is closed. Unlocked before it is closed, because the server carries out
        the closing a little later: the next to ask would still find the name held. ``psycopg.Error``: unknown; the
        lock ends when the server learns that we left.
        """
        stood = False
        try:
            with self._lock:
                self.lease_id, self.note = None, ""
                rows = self._ask(unlock, connection.ANSWER_TIMEOUT, params)
                stood = rows is not None and (not rows or bool(rows[0][0]))
        finally:
            self._rest_if(stood)
        return stood

    def stand_back(self, clear: str) -> None:
        """After a refusal: send ``clear``, after which nothing must be held, and rest. Raises ``psycopg.Error``."""
        cleared = False
        try:
            with self._lock:
                self.lease_id, self.note = None, ""
                self.connection.run(clear, timeout=connection.ANSWER_TIMEOUT)
                cleared = True
        finally:
            self._rest_if(cleared)

    def _rest_if(self, clean: bool) -> None:
        if clean and self._status == TransactionStatus.IDLE and self.ttl == self.place.ttl:
            registry.rest(self)
        else:
            self.close()

    def is_worn(self) -> bool:
        """Whether a session at rest is of no use: it has ended, or is too old."""
        return boottime() - self.made_at > registry.OLDEST or self.connection.has_gone()

    def close(self) -> None:
        registry.discard(self)
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
        """The answer, or ``None`` if the lock cannot stand any more. Raises ``psycopg.Error`` on no answer.

        For whoever has the lock of this object.
        """
        self.connection.give_up_at = boottime() + timeout
        try:
            self._finish_earlier_exchange()
            if self._status == TransactionStatus.INERROR:  # the transaction was aborted, and let go of its row
                return None
            if params is None or self.note:
                text = self.note + sql
                return self.connection.run_together(text, params or {}, timeout=timeout, may_warn=True)[-1]
            # It warns if the lock that is to be given back was not held, and answers with false.
            return self.connection.run(sql, params, timeout=timeout, may_warn=True)
        except connection.NoAnswer:
            raise
        except psycopg.Error as error:
            if self._has_ended(error):
                return None
            raise

    def _finish_earlier_exchange(self) -> None:
        """Read an answer that came too late for whoever asked. It proves nothing about now."""
        if self._status == TransactionStatus.ACTIVE:
            self.connection.wait(finish_exchange(self.connection.pgconn))

    def _has_ended(self, error: psycopg.Error) -> bool:
        fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
        return fatal or self._status in (TransactionStatus.UNKNOWN, TransactionStatus.INERROR)

    @property
    def _status(self) -> int:
        return self.connection.pgconn.transaction_status


def prepared(name: str, sql: str, /, **types: str) -> str:
    """The statement PREPARE for ``sql``, whose named parameters come in the order of ``types``."""
    for number, parameter in enumerate(types, start=1):
        sql = sql.replace(f"%({parameter})s", f"${number}")
    return f"PREPARE {name}({', '.join(types.values())}) AS {sql}"


@lru_cache(maxsize=64)
def patience(ttl: float) -> Mapping[str, str]:
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
