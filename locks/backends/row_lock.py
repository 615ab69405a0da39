"""``row_lock``: a row locked by an open transaction on a connection of its own."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

import psycopg

from .base import Grant
from .sessions import Session
from .sessions_backend import SessionBackend

# In: name. One row: locked. None: the name has no row yet, which is never "busy".
LOCK = "SELECT name FROM aegis_locks_row WHERE name = %(name)s FOR UPDATE NOWAIT"

# In: name. Two sessions may seed at once; either is fine.
SEED = "INSERT INTO aegis_locks_row (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING"

# In: name, lease_id, holder. What people want to read about the holder, committed apart from the open transaction,
# in which nobody could see it. Nothing is decided by it: a row of an earlier holder is not shown.
TELL = """
INSERT INTO aegis_locks_row_holder (name, lease_id, holder, acquired_at)
VALUES (%(name)s, %(lease_id)s, %(holder)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET lease_id = EXCLUDED.lease_id, holder = EXCLUDED.holder, acquired_at = EXCLUDED.acquired_at
"""

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
    """

    table: ClassVar[str] = "aegis_locks_row_holder"
    in_transaction: ClassVar[bool] = True
    held_sql: ClassVar[str] = f"{ALL_HELD} WHERE k.name = %(name)s"
    all_held_sql: ClassVar[str] = f"{ALL_HELD} WHERE starts_with(k.name, %(prefix)s)"

    def _take(self, session: Session, name: str, lease_id: UUID, holder: str) -> Grant | None:
        params = {**self._identity(name), "lease_id": lease_id, "holder": holder}
        try:
            session.execute("BEGIN")
            if not session.execute(LOCK, params):
                session.execute("ROLLBACK")
                session.execute(SEED, params)
                session.execute("BEGIN")
                if not session.execute(LOCK, params):
                    raise psycopg.OperationalError("its row vanished while it was being acquired")
        except psycopg.errors.LockNotAvailable:  # 55P03, from NOWAIT alone: the session has no lock_timeout
            return None
        self._execute("tell who holds", name, TELL, params)
        return Grant()

    def _unlocking(self, name: str) -> str:
        return "ROLLBACK"
