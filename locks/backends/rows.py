"""What the two backends that keep their state in a row of a PostgreSQL table have in common.

Each verb is one statement on this package's own autocommit connection (a refusal takes a second one, which looks),
and each decides by ``clock_timestamp()``. ``now()`` is the start of the transaction and does not move while a
statement waits for a row lock, so an expiry counted from it would be earlier than its holder believes. The next
number is drawn in the SET list, where it is evaluated under the row lock: computed before the wait, a slow session
would store 1 after another had stored 2. ``aegis_locks_next_token()`` outruns what a primary gave out before a
failover.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .. import connection
from ..base import LeaseInfo, LeaseInfos, validate_name
from ..exceptions import LockUnavailable
from .base import Grant
from .params import positive_seconds
from .postgres import PostgresBackend, PostgresParams

_TRIES = 10  # of a name whose holder leaves, or whose row vanishes, each time between asking and looking


class LeaseRowParams(PostgresParams):
    options = {"LOCK_DELAY": positive_seconds}


class RowBackend(PostgresBackend):
    """Subclasses give the statements; see the module's docstring for the rules these keep.

    ``acquire_sql`` returns one row (number) if it granted. No row has three meanings, which ``held_sql`` tells apart:
    another holds the name, which alone is "busy"; its holder has left meanwhile, and it is asked again; or the name
    has no row, because it is new or somebody deleted it, and it is seeded and asked again.
    """

    grant_numbers: ClassVar[bool] = True
    survives_store_restart: ClassVar[bool] = True

    acquire_sql: ClassVar[str]
    held_sql: ClassVar[str]
    seed_sql: ClassVar[str]
    release_sql: ClassVar[str]
    inspect_sql: ClassVar[str]
    list_sql: ClassVar[str]

    def inspect(self, name: str) -> LeaseInfo | None:
        rows = self._execute("inspect", validate_name(name), self.inspect_sql, {"name": self._stored(name)})
        return self._info(rows[0]) if rows else None

    def list(self, prefix: str = "") -> LeaseInfos:
        rows = self._execute("list", prefix, self.list_sql, {"prefix": self._stored(prefix)})
        return [self._info(row) for row in rows]

    @property
    def renews_in_background(self) -> bool:
        return self.renewable and not connection.is_routed()

    def _acquire(self, name: str, ttl: float, lease_id: Any, holder: str) -> Grant | None:
        params = {"name": self._stored(name), "ttl": ttl, "lease_id": lease_id, "holder": holder}
        params |= self._extra()
        for _ in range(_TRIES):
            granted = self._execute("acquire", name, self.acquire_sql, params)
            if granted:
                return Grant(granted[0][0])
            held = self._execute("look", name, self.held_sql, params)
            if not held:
                self._execute("seed", name, self.seed_sql, {"name": params["name"]})
            elif held[0][0]:
                return None
        raise LockUnavailable(
            f"Lock {name!r} ({self.alias}): its row changed or vanished each time that it was asked for.",
            name=name,
            alias=self.alias,
        )

    def _release(self, name: str, lease_id: Any, grant_no: int | None) -> bool:
        params = {"name": self._stored(name), "lease_id": lease_id, "number": grant_no}
        return bool(self._execute("release", name, self.release_sql, params))

    def _extra(self) -> dict[str, Any]:
        return {}

    def _info(self, row: tuple[Any, ...]) -> LeaseInfo:
        name, lease_id, holder, number, expires_in, acquired_at = row
        return LeaseInfo(
            name=self._told(name),
            alias=self.alias,
            lease_id=lease_id,
            holder=holder,
            grant_no=number,
            expires_in=float(expires_in),
            acquired_at=acquired_at,
        )
