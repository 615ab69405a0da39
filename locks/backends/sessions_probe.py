"""Is there a connection pooler between here and PostgreSQL? A lock of a session must not meet one.

Behind transaction pooling a session of the server serves whoever has the next statement. A lock taken there is
held by everybody who happens to get that session, is not given back by its holder, and stays when all have left.
Behind any pooler the server's own idea of when its client has gone is about the pooler and not about the holder.
So the answer is a refusal. Two questions, both asked before anything is locked:

1. Does the process that serves us bear the number that was announced when we connected? A pooler announces one
   of its own making.
2. Once for each process and database: is the process that serves us another one than that which serves a second
   connection with an open transaction, and does it stay the same?
"""

from __future__ import annotations

import os

import psycopg

from .. import connection
from ..clock import boottime
from .sessions import Session

BACKEND_PID = "SELECT pg_backend_pid()"

_proven: set[tuple[int, str, str, int]] = set()  # (process id, database alias, host, port)


class NotDirect(psycopg.OperationalError):
    """Something that pools connections stands before PostgreSQL."""


def refuse_pooler(session: Session, using: str) -> None:
    """Raise ``NotDirect`` if ``session`` is not a session of its own. ``psycopg.Error``: it cannot be told."""
    if session.served_by != session.pid:
        raise NotDirect(_explain(using, f"process {session.pid} was announced and {session.served_by} answers"))
    info = session.connection.info
    way = (os.getpid(), using, info.host, info.port)
    if way in _proven:
        return
    with connection.connect(using) as other:
        other.give_up_at = boottime() + connection.ANSWER_TIMEOUT
        with other.transaction():
            (row,) = other.execute(BACKEND_PID).fetchall()
            if row[0] == session.pid or session.execute(BACKEND_PID)[0][0] != session.pid:
                raise NotDirect(_explain(using, f"process {session.pid} serves two connections in turn"))
    _proven.add(way)


def _explain(using: str, seen: str) -> str:
    return (
        f"connections are pooled on the way to database {using!r} ({seen}), and a lock of a session does not survive"
        " that: set LOCATION to a database alias whose HOST and PORT are PostgreSQL's own, not the pooler's"
    )
