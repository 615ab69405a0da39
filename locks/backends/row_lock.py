"""``row_lock``: a row locked by an open transaction on a connection of its own."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

import psycopg

from .base import Grant
from .session_notes import note_of
from .sessions import BE_NAMED_IN_TRANSACTION, Session, prepared
from .sessions_backend import SessionBackend

# In: what names the session, and name. Two statements in one exchange. Out: one row: locked. None: the name has no
# row yet, which is never "busy", or the session is not ours.
LOCK = "BEGIN; EXECUTE aegis_lock(%(name)s, %(pid)s, %(app)s)"

PREPARE = prepared(
    "aegis_lock",
    f"SELECT name FROM aegis_locks_row WHERE name = %(name)s AND {BE_NAMED_IN_TRANSACTION} FOR UPDATE NOWAIT",  # noqa: S608 - made of constants
    name="text", pid="int", app="text",
)  # fmt: skip

# Out: true. A rolled back transaction holds no row; and no other lock is taken along to the next lease either.
CLEAR = "ROLLBACK; SELECT pg_advisory_unlock_all() IS NOT NULL"

# In: name. Two sessions may seed at once; either is fine.
SEED = "INSERT INTO aegis_locks_row (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING"

# A locked row bears the number of the transaction that locked it (xmax), and each transaction that is under way
# holds a lock on its own number. So the holder is found without asking for the row, which would disturb whoever
# asks for it at that moment. Only this backend locks these rows, each by one transaction, and none is ever changed.
ALL_HELD = """
SELECT k.name, p.pid FROM aegis_locks_row k
JOIN pg_locks p ON p.locktype = 'transactionid' AND p.transactionid = k.xmax
 AND p.mode = 'ExclusiveLock' AND p.granted
"""


class RowLockBackend(SessionBackend):
    """``SELECT ... FOR UPDATE NOWAIT``, held by an open transaction: what a team that knows row locks would write.

    Like ``advisory`` in what it covers, with a longer list of prices, so for short work only. There is no grant
    number, because it could be stored neither in the locked row nor in the open transaction; fencing tokens follow
    the order of start. Needs a direct connection too: a transaction pooler would be pinned by each lease.

    What an open transaction meets. *Vacuum*: it has a number, so nothing that was deleted or updated in this
    database after it began can be cleaned away until it ends; keep bodies to minutes, and a frozen holder in mind.
    ``idle_in_transaction_session_timeout``: each renewal, every third of the ttl, starts its clock again, so it
    must be longer than that; then it bounds how long a *frozen* holder keeps its name, and lets an overlap begin
    there. ``flush`` and ``TransactionTestCase``: the locked table is not one of Django's, so its TRUNCATE does not
    wait for the transaction; dropping the test database does not go on while a lease is held.

    Who holds is told by the session itself: nothing that its open transaction writes could be seen by others. Its
    name is the lease, a comment in what it sent last is the holder, and it holds since its transaction began.
    """

    kind: ClassVar[str] = "row lock"
    in_transaction: ClassVar[bool] = True
    release_sql: ClassVar[str] = CLEAR
    clear_sql: ClassVar[str] = CLEAR
    prepare_sql: ClassVar[str] = PREPARE
    since_sql: ClassVar[str] = "a.xact_start"
    held_sql: ClassVar[str] = f"{ALL_HELD} WHERE k.name = %(name)s"
    all_held_sql: ClassVar[str] = f"{ALL_HELD} WHERE starts_with(k.name, %(prefix)s)"

    def _take(self, session: Session, name: str, lease_id: UUID, holder: str) -> Grant | None:
        params = {**session.named, **self._identity(name)}
        session.note = note_of(holder)
        try:
            if not session.execute_together(LOCK, params)[1]:
                session.execute("ROLLBACK")
                session.execute(SEED, params)
                if not session.execute_together(LOCK, params)[1]:
                    raise psycopg.OperationalError("its row vanished, or another session answers in place of ours")
        except psycopg.errors.LockNotAvailable:  # 55P03, from NOWAIT alone: the session has no lock_timeout
            return None
        return Grant()
