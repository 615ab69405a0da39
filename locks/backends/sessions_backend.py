"""What ``advisory`` and ``row_lock`` have in common: verbs over a lease that is a session."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

import psycopg
from django.core import checks

from ..base import Lease, LeaseInfo, LeaseInfos, validate_name
from ..connection import renewal_timeout
from ..examination import sessions as session_examination
from ..findings import Findings
from . import session_notes, sessions
from . import session_registry as registry
from .base import Grant
from .params import ParamsValidator
from .postgres import PostgresBackend, PostgresParams
from .session_registry import Key
from .sessions import Session
from .sessions_probe import refuse_pooler

# Who holds what: `held` gives (name, pid) of the sessions that hold a lock now, and each session says itself which
# lease it is, by whom and since when. Looked at one after the other: a session that went on to another lease in
# between is shown with that one, for once. To a role that may not read statistics a session of another role tells
# neither holder nor instant, and one that is not ours tells nothing: then the name is held, and by whom is unknown.
_SHOW = r"""
SELECT held.name, told.name[1]::uuid, coalesce({holder}, 'process ' || held.pid || ' of the database'),
       told.name[2]::bigint, {since}
FROM ({held}) held
LEFT JOIN pg_stat_activity a ON a.pid = held.pid
CROSS JOIN LATERAL (
    SELECT regexp_match(a.application_name, '^aegis ([0-9a-f-]{{36}})(?: (\d{{1,18}}))?$') AS name) told
ORDER BY held.name
"""

# In: app, door. Ends the session that holds the name, if it is the one of that lease. Waits until it has gone, for
# two seconds at most: then the server warns, which is an error here. Looks twice, because the session may have gone
# on to another lease; behind the door it does not.
_END = """
WITH found AS MATERIALIZED (
    SELECT held.pid FROM ({held}) held
    JOIN pg_stat_activity a ON a.pid = held.pid WHERE starts_with(a.application_name, %(app)s)),
shut AS MATERIALIZED (
    SELECT pid, pg_advisory_xact_lock(%(door)s, pid), pg_stat_clear_snapshot() FROM found)
SELECT pg_terminate_backend(shut.pid, 2000)
FROM shut CROSS JOIN LATERAL pg_stat_get_activity(shut.pid) a WHERE starts_with(a.application_name, %(app)s)
"""

POOLER_PORT = "6432"
"""Where PgBouncer listens unless it is told otherwise."""


class SessionParams(PostgresParams):
    def check_database(self, entry: Mapping[str, Any]) -> None:
        """W001: what is known of poolers from the settings. The backend itself asks the server."""
        signs = []
        if entry.get("DISABLE_SERVER_SIDE_CURSORS"):
            signs.append("DISABLE_SERVER_SIDE_CURSORS is set, which Django asks for behind transaction pooling")
        if str(entry.get("PORT", "")) == POOLER_PORT:
            signs.append(f"PORT is {POOLER_PORT}, which is PgBouncer's")
        if signs:
            self.found.append(
                checks.Warning(
                    f"LOCKS[{self.alias!r}]['LOCATION']: its database seems to be pooled: {'; '.join(signs)}.",
                    hint="A session's lock does not survive pooling and is refused there. Name a database alias whose"
                    " HOST and PORT are PostgreSQL's own.",
                    obj=self.alias,
                    id="aegis.locks.W001",
                )
            )


class SessionBackend(PostgresBackend):
    """See ``sessions`` for what such a lease is, what its ``ttl`` means and what is not covered.

    A killed holder's name is free at once; ``takeover_bound`` is about a machine that vanished. A frozen holder
    keeps its name. Subclasses say how a session takes the lock, how it gives it back, and who holds it.
    """

    verifies: ClassVar[bool] = True  # a session can end without a word between the last renewal and the result
    store_clock: ClassVar[bool] = False  # no clock decides: the lock ends with its session
    session_bound: ClassVar[bool] = True
    minimum_ttl: ClassVar[float] = 1.0  # the server counts keepalives in whole seconds
    params_validator: ClassVar[type[ParamsValidator]] = SessionParams

    kind: ClassVar[str]  # of its locks, for people and to tell its sessions apart
    prepare_sql: ClassVar[str]  # for a new session, before its first lease
    release_sql: ClassVar[str]  # gives the lock back. No row, or one with true: it was ours until then
    clear_sql: ClassVar[str]  # lets go of all that a session may hold that was refused the lock
    in_transaction: ClassVar[bool] = False  # does a session that holds a lease have an open transaction?
    since_sql: ClassVar[str]  # of pg_stat_activity as `a`
    held_sql: ClassVar[str]  # (name, pid) of who holds the name of _identity()
    all_held_sql: ClassVar[str]  # the same for all names that begin with the prefix

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.maximum_ttl = 3600.0  # the kernel's own limit on keepalives is nine hours

    @property
    def takeover_bound(self) -> float | None:
        return sessions.patience_ends(self.ttl)

    def inspect(self, name: str) -> LeaseInfo | None:
        rows = self._execute("inspect", validate_name(name), self._showing(self.held_sql), self._identity(name))
        return self._info(rows[0]) if rows else None

    def list(self, prefix: str = "") -> LeaseInfos:
        rows = self._execute("list", prefix, self._showing(self.all_held_sql), {"prefix": self._stored(prefix)})
        return [self._info(row) for row in rows]

    def verify(self, lease: Lease) -> bool:
        """Whether its session still stands. ``LockUnavailable`` when there is no answer."""
        return self._renew(lease, lease.ttl)

    def examine(self) -> Findings:
        return session_examination.examine(self.alias, self.using, self.ttl, in_transaction=self.in_transaction)

    # storage verbs

    def _acquire(self, name: str, ttl: float, lease_id: UUID, holder: str) -> Grant | None:
        key = self._key(name, lease_id)
        held = registry.find(key)
        if held is not None:  # asked again under the same id
            if self._stands(held, key, ttl, timeout=renewal_timeout(ttl)):
                return held.grant
            registry.forget(key)
        in_doubt = registry.settle(key)
        grant = self._ask_anew(key, name, ttl, holder)
        if grant is None and in_doubt and self._force_release(name, lease_id):
            grant = self._ask_anew(key, name, ttl, holder)  # the name was held by what an earlier try had left
        return grant

    def _renew(self, lease: Lease, ttl: float) -> bool:
        key = self._key(lease.name, lease.lease_id)
        session = registry.find(key)
        if session is None:
            return False
        stands = self._stands(session, key, ttl, timeout=renewal_timeout(lease.ttl))
        if not stands:
            registry.forget(key)
        return stands

    def _release(self, name: str, lease_id: UUID, grant_no: int | None) -> bool:
        key = self._key(name, lease_id)
        session = registry.forget(key)
        if session is None:  # never granted, lost, or of another process: unless a try ended in doubt
            return registry.settle(key) and self._force_release(name, lease_id)
        try:
            return session.give_up(self.release_sql, self._identity(name) if "%(" in self.release_sql else None)
        except psycopg.Error as error:
            raise self._doubt("release", name, error) from error

    def _force_release(self, name: str, lease_id: UUID) -> bool:
        app = f"{sessions.NAMED}{lease_id}"
        params = {**self._identity(name), "app": app, "door": sessions.DOOR}
        return bool(self._execute("force release", name, _END.format(held=self.held_sql), params))

    # parts

    def _take(self, session: Session, name: str, lease_id: UUID, holder: str) -> Grant | None:
        """Take the lock on ``session``. ``None``: known to be held by another session."""
        raise NotImplementedError

    def _identity(self, name: str) -> dict[str, Any]:
        """The parameters by which the statements know ``name``."""
        return {"name": self._stored(name)}

    def _ask_anew(self, key: Key, name: str, ttl: float, holder: str) -> Grant | None:
        try:
            session = self._session_for(key.lease_id, ttl)
            try:
                grant = session.grant = self._take(session, name, key.lease_id, holder)
            except BaseException:
                registry.doubt(key)
                session.close()
                raise
        except psycopg.Error as error:
            raise self._doubt("acquire", name, error) from error
        if grant is None:
            self._let_rest(session)
        else:
            registry.keep(key, session)
        return grant

    def _session_for(self, lease_id: UUID, ttl: float) -> Session:
        """One that is at rest, else a new one that is known to be direct."""
        session = registry.wake(registry.place_of(self.kind, self.using, ttl))
        if session is not None:
            session.serve(lease_id)
            return session
        session = Session(self.using, lease_id, ttl, kind=self.kind)
        try:
            refuse_pooler(session, self.using)
            self._prepare(session)
        except BaseException:
            session.close()
            raise
        session.connection.may_prepare = True
        return session

    def _prepare(self, session: Session) -> None:
        """What a new session is told before its first lease."""
        session.execute(self.prepare_sql)

    def _let_rest(self, session: Session) -> None:
        """The name is held by another, which is the answer whatever becomes of this session."""
        with contextlib.suppress(psycopg.Error):
            session.stand_back(self.clear_sql)

    def _stands(self, session: Session, key: Key, ttl: float, timeout: float) -> bool:
        try:
            return session.stands(key.lease_id, ttl, timeout)
        except psycopg.Error as error:
            raise self._doubt("prove the session", self._told(key.name), error) from error

    def _key(self, name: str, lease_id: UUID) -> Key:
        return Key(self.kind, self.using, self._stored(name), lease_id)

    def _showing(self, held: str) -> str:
        return _SHOW.format(held=held, holder=session_notes.HOLDER, since=self.since_sql)

    def _info(self, row: tuple[Any, ...]) -> LeaseInfo:
        name, lease_id, holder, number, acquired_at = row
        return LeaseInfo(
            name=self._told(name), alias=self.alias, lease_id=lease_id, holder=session_notes.read(holder),
            grant_no=number, expires_in=None, acquired_at=acquired_at,
        )  # fmt: skip
