"""``database``: a row with ``expires_at``, renewed by a heartbeat and taken over after its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .. import connection
from ..base import Lease
from .params import ParamsValidator
from .rows import LeaseRowParams, RowBackend

# In:  name, lease_id, holder, ttl and lock_delay in seconds. Out: one row (token) if it was granted. Idempotent: for
# the id that holds it already, token and acquired_at stay and the end never moves back.
ACQUIRE = """
UPDATE aegis_locks_lease SET
    token       = CASE WHEN lease_id = %(lease_id)s AND expires_at > clock_timestamp()
                       THEN token ELSE greatest(token + 1, aegis_locks_next_token()) END,
    acquired_at = CASE WHEN lease_id = %(lease_id)s AND expires_at > clock_timestamp()
                       THEN acquired_at ELSE clock_timestamp() END,
    holder      = %(holder)s,
    lease_id    = %(lease_id)s,
    expires_at  = GREATEST(CASE WHEN lease_id = %(lease_id)s THEN expires_at END,
                           clock_timestamp() + make_interval(secs => %(ttl)s))
WHERE name = %(name)s
  AND (lease_id = %(lease_id)s
       OR expires_at + make_interval(secs => %(lock_delay)s) <= clock_timestamp())
RETURNING token
"""

# In: name, lease_id, lock_delay. Out: whether another holds the name; no row: it was never used.
HELD = """
SELECT lease_id IS DISTINCT FROM %(lease_id)s
       AND expires_at + make_interval(secs => %(lock_delay)s) > clock_timestamp()
FROM aegis_locks_lease WHERE name = %(name)s
"""

# In: name. Two sessions may seed at once; either is fine.
SEED = "INSERT INTO aegis_locks_lease (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING"

# In: name, lease_id, number, ttl. Out: one row if it was alive and ours. A lease past its end is dead even
# if nobody took it; GREATEST keeps a longer end, also after the database's clock stepped back.
RENEW = """
UPDATE aegis_locks_lease
SET expires_at = GREATEST(expires_at, clock_timestamp() + make_interval(secs => %(ttl)s))
WHERE name = %(name)s AND lease_id = %(lease_id)s AND token = %(number)s AND expires_at > clock_timestamp()
RETURNING true
"""

# In: name, lease_id, number or NULL. Out: one row if it was ours. Never a DELETE: the row remembers the
# token.
RELEASE = """
UPDATE aegis_locks_lease SET lease_id = NULL, expires_at = 'epoch'
WHERE name = %(name)s AND lease_id = %(lease_id)s AND (%(number)s::bigint IS NULL OR token = %(number)s)
RETURNING true
"""

_SHOW = """
SELECT name, lease_id, holder, token, extract(epoch FROM expires_at - clock_timestamp()), acquired_at
FROM aegis_locks_lease WHERE lease_id IS NOT NULL AND expires_at > clock_timestamp()
"""


class DatabaseLeaseBackend(RowBackend):
    """The default choice where PostgreSQL is at hand: one short statement a verb, only the database's clock.

    Covers overlap as long as the database's clock does not step forward by more than the ttl's margin and
    no grant is lost by a failover without synchronous replication. ``OPTIONS``: ``LOCK_DELAY``, seconds for
    which a name stays closed after a lease *expired* (not after a release), to let the last writes of a
    dead holder settle.
    """

    params_validator: ClassVar[type[ParamsValidator]] = LeaseRowParams
    acquire_sql: ClassVar[str] = ACQUIRE
    held_sql: ClassVar[str] = HELD
    seed_sql: ClassVar[str] = SEED
    release_sql: ClassVar[str] = RELEASE
    inspect_sql: ClassVar[str] = _SHOW + "AND name = %(name)s"
    list_sql: ClassVar[str] = _SHOW + "AND starts_with(name, %(prefix)s) ORDER BY name"

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.lock_delay = float(self.options.get("LOCK_DELAY", 0.0))

    @property
    def takeover_bound(self) -> float | None:
        return self.ttl + self.lock_delay

    def _extra(self) -> dict[str, Any]:
        return {"lock_delay": self.lock_delay}

    def _renew(self, lease: Lease, ttl: float) -> bool:
        params = {
            "name": self._stored(lease.name),
            "lease_id": lease.lease_id,
            "number": lease.grant_no,
            "ttl": ttl,
        }
        timeout = connection.renewal_timeout(lease.ttl)
        return bool(self._execute("renew", lease.name, RENEW, params, timeout=timeout))
