"""Is there a connection pooler between here and PostgreSQL?

Behind transaction pooling a session of the server serves whoever has the next statement. A lock of a session that is
taken there is held by everybody who happens to get that session, is not given back by its holder, and stays when all
have left. A statement that was prepared there is missing on the next session, or is another client's of the same
name. Two questions tell:

1. Does the process that serves us bear the number that was announced when we connected? A pooler announces one of
   its own making.
2. Once for each process and database: is the process that serves us another one than that which serves a second
   connection with an open transaction, and does it stay the same?
"""

from __future__ import annotations

import os

from django.db import connections

from .bounded import BoundedConnection, connect
from .clock import boottime

BACKEND_PID = "SELECT pg_backend_pid()"

Way = tuple[int, str, str, int]  # process id, database alias, host, port

_proven: set[Way] = set()
_refuted: set[str] = set()  # database aliases


def seen_pooling(
    connection: BoundedConnection, using: str, timeout: float, served_by: int | None = None
) -> str | None:
    """What shows that ``connection`` to the database ``using`` is pooled; ``None``: it is a session of its own.

    ``served_by``: the answer to the first question, where it was asked already. ``timeout``: seconds to wait for an
    answer. Raises ``psycopg.Error`` when it cannot be told.
    """
    announced = connection.info.backend_pid
    served_by = served_by or connection.run(BACKEND_PID, timeout=timeout)[0][0]
    if served_by != announced:
        return f"process {announced} was announced and {served_by} answers"
    way = (os.getpid(), using, connection.info.host, connection.info.port)
    if way not in _proven:
        with connect(using) as other:
            other.give_up_at = boottime() + timeout
            with other.transaction():
                others = other.run(BACKEND_PID, timeout=timeout)[0][0]
                again = connection.run(BACKEND_PID, timeout=timeout)[0][0]
        if others == announced or again != announced:
            return f"process {announced} serves two connections in turn"
        _proven.add(way)
    return None


def may_prepare(connection: BoundedConnection, using: str, timeout: float) -> bool:
    """Whether statements may be prepared on ``connection``: as the settings say, else if it is known to be direct."""
    said = preparing_is_set(using)
    if said is not None:
        return said
    return using not in _refuted and seen_pooling(connection, using, timeout) is None


def preparing_is_set(using: str) -> bool | None:
    """What ``OPTIONS`` of the database says about preparing statements; ``None``: nothing."""
    options = connections.settings[using].get("OPTIONS", {})
    return options["prepare_threshold"] is not None if "prepare_threshold" in options else None


def never_prepare(using: str) -> None:
    """Statements that were prepared for ``using`` have vanished: from now on this process prepares none there."""
    _refuted.add(using)
