"""``advisory``: a session's advisory lock on a connection of its own."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar
from uuid import UUID

from ..exceptions import LockUnavailable
from .base import Grant
from .sessions import AT_REST, BE_NAMED, NotOurs, Session
from .sessions_backend import SessionBackend

# In: what names the session; key, name, lease_id, holder. Out: (taken, number); taken is NULL, and nothing done, if
# the session is not ours.
# The number is drawn by the session that has just taken the lock and while it has it, so that the order of the
# numbers is the order of the locks. (true, NULL): the name is not in the registry; the lock *is* held.
ACQUIRE = f"""
WITH l AS MATERIALIZED (SELECT CASE WHEN {BE_NAMED} THEN pg_try_advisory_lock(%(key)s) END AS taken),
u AS (UPDATE aegis_locks_advisory
         SET grant_no = greatest(grant_no + 1, aegis_locks_next_token()),
             lease_id = %(lease_id)s, holder = %(holder)s, acquired_at = clock_timestamp()
        FROM l WHERE l.taken AND name = %(name)s AND key = %(key)s RETURNING grant_no)
SELECT l.taken, u.grant_no FROM l LEFT JOIN u ON true
"""  # noqa: S608 - made of constants

# In: name, key. Out: one row if the registry has this very pair: a refusal is about this name, and not about another
# of that key.
KNOWN = "SELECT FROM aegis_locks_advisory WHERE name = %(name)s AND key = %(key)s"

# In: key. Out: whether it was ours. What else there may be is let go of too: the session may serve another lease
# next.
RELEASE = f"""
SELECT pg_advisory_unlock(%(key)s), pg_advisory_unlock_all(), set_config('application_name', '{AT_REST}', false)
"""

CLEAR = f"SELECT pg_advisory_unlock_all(), set_config('application_name', '{AT_REST}', false)"

# In: name, key. Two sessions may seed at once; either is fine. Nothing if either half stands for something else.
SEED = "INSERT INTO aegis_locks_advisory (name, key) VALUES (%(name)s, %(key)s) ON CONFLICT DO NOTHING"

OTHERS = "SELECT name, key FROM aegis_locks_advisory WHERE name = %(name)s OR key = %(key)s"

# The sessions that hold the keys of `names`. A key of 64 bits is shown in two halves, and with objsubid 1.
_HELD = """
SELECT k.name, p.pid FROM {names} k
JOIN pg_locks p ON p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted
 AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 AND (p.classid::bigint << 32 | p.objid::bigint) = k.key
"""

# By the key and not by the registry: a row that somebody deleted frees no lock.
HELD = _HELD.format(names="(SELECT %(name)s::text AS name, %(key)s::bigint AS key)")
ALL_HELD = _HELD.format(names="aegis_locks_advisory") + "WHERE starts_with(k.name, %(prefix)s)"


@lru_cache(maxsize=1024)
def key_of(stored: str) -> int:
    """The signed 64-bit number that stands for a stored name in PostgreSQL's list of advisory locks.

    The same in each process and version of Python, which ``hash()`` is not. Without the database's alias: two
    aliases may lead to one database. The registry sees to it that no two names share a key.
    """
    digest = blake2b(b"aegis\0" + stored.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class AdvisoryLockBackend(SessionBackend):
    """Instant takeover after a crash, no transaction held open, no clock: for long work on one direct database.

    ``pg_try_advisory_lock`` on a session of its own for each lease; ``ttl`` bounds how long a holder believes in a
    session that does not answer. Covers overlap while the session lives, frozen holders included. Needs a direct
    connection: behind PgBouncer or another pooler each acquire is refused with the remedy, which is to name in
    ``LOCATION`` a database alias that leads to PostgreSQL itself. Cost: one connection for each held lease, and a few
    that stay for some seconds.

    A name stands in the registry beside its key. Two names of one key would exclude each other and look like a
    stuck job, so the second is refused with an error that names the first.
    """

    grant_numbers: ClassVar[bool] = True
    kind: ClassVar[str] = "advisory"
    holder_sql: ClassVar[str] = "r.holder"
    since_sql: ClassVar[str] = "r.acquired_at"
    more_sql: ClassVar[str] = "LEFT JOIN aegis_locks_advisory r ON r.name = held.name AND r.lease_id = lease.id"
    number_sql: ClassVar[str] = "r.grant_no"
    release_sql: ClassVar[str] = RELEASE
    clear_sql: ClassVar[str] = CLEAR
    held_sql: ClassVar[str] = HELD
    all_held_sql: ClassVar[str] = ALL_HELD

    def _take(self, session: Session, name: str, lease_id: UUID, holder: str) -> Grant | None:
        params = {**session.named, **self._identity(name), "lease_id": lease_id, "holder": holder}
        for may_seed in (True, False):
            ((taken, number),) = session.execute(ACQUIRE, params)
            if taken is None:
                raise NotOurs("its session is not the one that was announced, or is being ended")
            if taken and number is not None:
                return Grant(number)
            if not taken and session.execute(KNOWN, params):
                return None
            if taken:
                session.execute(RELEASE, params)
            if may_seed:
                session.execute(SEED, params)
        raise self._collision(session, name, params)

    def _collision(self, session: Session, name: str, params: dict[str, Any]) -> LockUnavailable:
        rows = session.execute(OTHERS, params)
        registered = ", ".join(f"{other!r} with key {key}" for other, key in rows) or "neither"
        return LockUnavailable(
            f"Lock {name!r} ({self.alias}): its key is {params['key']}, but registered is {registered}. Two names of"
            " one key would keep each other waiting: rename one, or remove from the table aegis_locks_advisory a name"
            " that is not used any more.",
            name=name,
            alias=self.alias,
        )

    def _identity(self, name: str) -> dict[str, Any]:
        stored = self._stored(name)
        return {"name": stored, "key": key_of(stored)}
