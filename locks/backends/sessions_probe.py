"""A lock of a session must not meet a connection pooler: where there is one, the answer is a refusal.

Behind any pooler the server's own idea of when its client has gone is about the pooler and not about the holder. See
``locks.pooling`` for how it is found out, which is before anything is locked.
"""

from __future__ import annotations

import psycopg

from .. import connection, pooling
from .sessions import Session


class NotDirect(psycopg.OperationalError):
    """Something that pools connections stands before PostgreSQL."""


def refuse_pooler(session: Session, using: str) -> None:
    """Raise ``NotDirect`` if ``session`` is not a session of its own. ``psycopg.Error``: it cannot be told."""
    seen = pooling.seen_pooling(session.connection, using, connection.ANSWER_TIMEOUT, session.served_by)
    if seen is not None:
        raise NotDirect(
            f"connections are pooled on the way to database {using!r} ({seen}), and a lock of a session does not"
            " survive that: set LOCATION to a database alias whose HOST and PORT are PostgreSQL's own, not the"
            " pooler's"
        )
