"""``advisory``: a session's advisory lock on a connection of its own."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar
from uuid import UUID, uuid4

import psycopg

from ..exceptions import LockUnavailable
from .base import Grant
from .numbering import numbering_of
from .session_notes import SINCE, note_of
from .sessions import AT_REST, BE_NAMED, NotOurs, Session, prepared
from .sessions_backend import SessionBackend

# In: the parameters of ACQUIRE. Out: taken, NULL if the session is not ours or may not write (a standby has locks of
# its own, which mean nothing), and then nothing was done; whether the registry has this very pair of name and key, so
# that a refusal is about this name and not about another of that key; the number, NULL if not both; the instant in
# microseconds, for people.
# The number is drawn by the session that has just taken the lock and while it has it, so that the order of the
# numbers is the order of the locks. It is not stored but shown, in the session's name. What a crash must not forget
# is that it was drawn: the sequence writes that down for 32 numbers ahead, and whoever draws one of those may be
# faster than the disk:
#
#     session A: draws 33, and with it 34 to 64 are written down, in memory
#     session B: draws 34, has written nothing, and is done at once; the server crashes; 34 would be drawn again
#
# So if anything is not on disk yet, this transaction writes too, an empty message to nobody, and its end waits for
# the disk. (A transaction number alone would not make it wait.)
_TAKE = f"""
WITH l AS MATERIALIZED (
    SELECT CASE WHEN current_setting('transaction_read_only') = 'off' AND {BE_NAMED}
                THEN pg_try_advisory_lock(%(key)s) END AS taken),
n AS MATERIALIZED (
    SELECT l.taken, r.name IS NOT NULL AS known,
           CASE WHEN l.taken AND r.name IS NOT NULL THEN aegis_locks_next_token() END AS number
    FROM l LEFT JOIN aegis_locks_advisory r ON r.name = %(name)s AND r.key = %(key)s)
SELECT taken, known, number, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
       number IS NOT NULL AND set_config('application_name', %(app)s || ' ' || number, false) IS NOT NULL
       AND pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
       AND pg_logical_emit_message(true, 'aegis', '') IS NOT NULL
FROM n
"""  # noqa: S608 - made of constants

# In: what names the session; key, name. EXECUTE, and not the driver, so that the holder can be told before it.
ACQUIRE = "EXECUTE aegis_acquire(%(pid)s, %(app)s, %(key)s, %(name)s)"
PREPARE = prepared("aegis_acquire", _TAKE, pid="int", app="text", key="bigint", name="text")

# Out: what tells this database, here and on standbys, from copies of it. Where a copy goes on in its place, with
# another sequence or on an earlier timeline, numbers may begin anew: so those of two such databases are not compared.
CLUSTER = """
SELECT system_identifier::text, d.oid::text, 'aegis_locks_token'::regclass::oid::text
FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
"""

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
    prepare_sql: ClassVar[str] = PREPARE
    since_sql: ClassVar[str] = SINCE
    release_sql: ClassVar[str] = RELEASE
    clear_sql: ClassVar[str] = CLEAR
    held_sql: ClassVar[str] = HELD
    all_held_sql: ClassVar[str] = ALL_HELD

    def _take(self, session: Session, name: str, lease_id: UUID, holder: str) -> Grant | None:
        params = {**session.named, **self._identity(name)}
        for may_seed in (True, False):
            session.note = note_of(holder)
            (((taken, known, number, since, _),),) = session.execute_together(ACQUIRE, params)
            if taken is None:
                raise NotOurs("its session may only read, is not the one that was announced, or is being ended")
            if known:
                session.note = note_of(holder, since)
                return Grant(number, numbering=numbering_of(self, *session.cluster)) if taken else None
            if taken:
                session.execute(RELEASE, params)
            if may_seed:
                session.execute(SEED, params)
        raise self._collision(session, name, params)

    def _prepare(self, session: Session) -> None:
        super()._prepare(session)
        try:
            session.cluster = session.execute(CLUSTER)[0]
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported):
            session.cluster = (uuid4().hex,)  # what is not known is not compared: the order is that of the starts

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
