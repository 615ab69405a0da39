"""``optimistic``: the claim is a courtesy, the version decides."""

from __future__ import annotations

from typing import ClassVar

from ..base import Lease
from .rows import RowBackend

# In:  name, lease_id, holder, ttl (the claim window, in seconds). Out: one row (version) if it was granted.
# Idempotent: the same id gets the same version again and its window stays where it was.
ACQUIRE = """
UPDATE aegis_locks_claim SET
    version     = CASE WHEN lease_id = %(lease_id)s THEN version
                       ELSE greatest(version + 1, aegis_locks_next_token()) END,
    acquired_at = CASE WHEN lease_id = %(lease_id)s THEN acquired_at ELSE clock_timestamp() END,
    closes_at   = CASE WHEN lease_id = %(lease_id)s THEN closes_at
                       ELSE clock_timestamp() + make_interval(secs => %(ttl)s) END,
    holder      = %(holder)s,
    lease_id    = %(lease_id)s
WHERE name = %(name)s
  AND (lease_id IS NULL OR lease_id = %(lease_id)s OR closes_at <= clock_timestamp())
RETURNING version
"""

# In: name, lease_id. Out: whether another holds its window open; no row: the name was never used.
HELD = """
SELECT coalesce(lease_id <> %(lease_id)s, false) AND closes_at > clock_timestamp()
FROM aegis_locks_claim WHERE name = %(name)s
"""

# In: name. Two sessions may seed at once; either is fine.
SEED = "INSERT INTO aegis_locks_claim (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING"

# In: name, lease_id, number (the version). Out: one row while nobody has claimed the name since. No clock
# in it.
VERIFY = """
SELECT true FROM aegis_locks_claim
WHERE name = %(name)s AND version = %(number)s AND lease_id = %(lease_id)s
"""

# In: name, lease_id, number or NULL. Out: one row if the claim still stood.
RELEASE = """
UPDATE aegis_locks_claim SET lease_id = NULL, closes_at = 'epoch'
WHERE name = %(name)s AND lease_id = %(lease_id)s AND (%(number)s::bigint IS NULL OR version = %(number)s)
RETURNING true
"""

_SHOW = """
SELECT name, lease_id, holder, version, extract(epoch FROM closes_at - clock_timestamp()), acquired_at
FROM aegis_locks_claim WHERE lease_id IS NOT NULL AND closes_at > clock_timestamp()
"""


class OptimisticClaimBackend(RowBackend):
    """Two statements, no renewal, no background traffic; a long pause alone kills nothing.

    Acquiring opens a claim window of ``ttl`` seconds, and others are refused while it is open. A claim that
    outlives its window is still good if nobody else claimed meanwhile; if somebody did, ``verify`` says so
    and the work is lost. So overlap is prevented while the work is shorter than the window, and *detected*
    when it is longer. Choose the window longer than the work, and give the task a hard time limit below it.
    For short work whose effects are in the database. A dead holder's name is free when its window closes.
    """

    renewable: ClassVar[bool] = False
    verifies: ClassVar[bool] = True
    trust_window: ClassVar[bool] = False
    acquire_sql: ClassVar[str] = ACQUIRE
    held_sql: ClassVar[str] = HELD
    seed_sql: ClassVar[str] = SEED
    release_sql: ClassVar[str] = RELEASE
    inspect_sql: ClassVar[str] = _SHOW + "AND name = %(name)s"
    list_sql: ClassVar[str] = _SHOW + "AND starts_with(name, %(prefix)s) ORDER BY name"

    def verify(self, lease: Lease) -> bool:
        """Whether nobody has claimed the name since. ``LockUnavailable`` when the database cannot say."""
        params = {"name": self._stored(lease.name), "number": lease.grant_no, "lease_id": lease.lease_id}
        return bool(self._execute("verify", lease.name, VERIFY, params))

    def _renew(self, lease: Lease, ttl: float) -> bool:
        """A claim is never prolonged; renewing one only tells whether it still stands."""
        return self.verify(lease)
