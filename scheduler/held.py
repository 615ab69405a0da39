"""Held locks: what every store shows, beside the executions that run; for the pages and the command line.

Each alias of LOCKS is asked in a thread of its own and for a bounded time: a store that does not answer is one line
that says so, and never hides what the others hold. Nothing is decided here; a lease is ended by ``releasing``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from locks import InvalidLockBackend, lock_backends
from locks.base import LeaseInfo, LeaseInfos
from scheduler.conf import conf
from scheduler.doctor.bounded import Asked, NotAnswered
from scheduler.models import Execution, LockName
from scheduler.states import ExecutionState

PATIENCE = 3.0  # seconds for the answer of all stores together
STARTING = 2.0  # seconds that may lie between a lease and the row of its execution, at either end
MOST = 500  # running executions looked at whose lease no store shows
_BEAT = "aegis.beat."

HEALTHY, LATE, ORPHAN, OTHER = "Healthy", "Late renewal", "Orphan", "Held by code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One held name. ``expires_at`` is by the database's clock; None where the lease ends with its session."""

    info: LeaseInfo
    execution: Execution | None
    state: str
    why: str
    expires_at: datetime | None
    ttl: float

    @property
    def schedule(self) -> str:
        """What holds it, for people."""
        tick = self.execution.tick if self.execution else None
        return (tick.schedule_name or tick.task) if tick else ""

    @property
    def worker(self) -> str:
        """Who holds it, for people."""
        execution = self.execution
        if execution is None:
            return self.info.holder
        return f"{execution.worker or 'unnamed worker'}{f' pid {execution.pid}' if execution.pid else ''}"

    @property
    def token(self) -> int | None:
        """The fencing token of its execution, else the store's number of the grant."""
        return self.execution.token if self.execution else self.info.grant_no

    @property
    def left(self) -> float | None:
        """Seconds until it ends unless renewed, when the store answered."""
        return self.info.expires_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A store that did not say what it holds."""

    alias: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """All that is known now. ``unlocked``: bodies that run although no store shows their lease any more."""

    now: datetime
    held: list[Held]
    unread: list[Unread]
    unlocked: list[Execution]


def locks(patience: float = PATIENCE) -> Locks:
    """What every store holds, in the order of names; five queries whatever is held."""
    infos, unread = _ask(patience)
    now = _now()
    executions = _executions([info.lease_id for info in infos if info.lease_id])
    known = set(LockName.objects.filter(name__in={info.name for info in infos}).values_list("name", flat=True))
    held = [_held(info, executions.get(info.lease_id), info.name in known, now) for info in infos]
    shown, silent = {info.lease_id for info in infos}, {one.alias for one in unread}
    exclusive = {alias for alias in lock_backends.aliases() if alias not in silent and excludes(alias)}
    unlocked = [
        row
        for row in executions.values()
        if row.state == ExecutionState.RUNNING and row.lock_alias in exclusive and row.lease_id not in shown
    ]
    return Locks(now=now, held=held, unread=unread, unlocked=[row for row in unlocked if _for_long(row, now)])


def _ask(patience: float) -> tuple[LeaseInfos, list[Unread]]:
    """Leases of every alias, each once although two aliases may share a store."""
    asked = {alias: Asked(lambda alias=alias: lock_backends[alias].list()) for alias in lock_backends.aliases()}  # type: ignore[misc]
    found: dict[tuple[str, object], LeaseInfo] = {}
    unread = []
    for alias, question in asked.items():
        try:
            for info in question.answer(patience):
                found.setdefault((info.name, info.lease_id or alias), info)
        except NotAnswered as why:
            unread.append(Unread(alias=alias, why=str(why)))
    return sorted(found.values(), key=lambda info: (info.name, info.alias)), unread


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def _executions(leases: list[UUID]) -> dict[UUID | None, Execution]:
    """Whatever these leases were given to, and the newest that run under others; by lease."""
    rows = Execution.objects.select_related("tick")
    others = rows.filter(state=ExecutionState.RUNNING).exclude(lease_id__in=leases).order_by("-id")[:MOST]
    return {row.lease_id: row for row in (*rows.filter(lease_id__in=leases), *others)}


def excludes(alias: str) -> bool:
    """Whether the strategy keeps anybody out; one that cannot be made does, as far as anybody knows."""
    try:
        return lock_backends[alias].exclusive
    except InvalidLockBackend:
        return True


def _held(info: LeaseInfo, execution: Execution | None, known: bool, now: datetime) -> Held:
    ttl = execution.tick.ttl if execution else lock_backends[info.alias].ttl
    state, why = _state(info, execution, known, ttl, now)
    left = info.expires_in
    expires_at = None if left is None else now + timedelta(seconds=left)
    return Held(info=info, execution=execution, state=state, why=why, expires_at=expires_at, ttl=ttl)


def _state(info: LeaseInfo, execution: Execution | None, known: bool, ttl: float, now: datetime) -> tuple[str, str]:
    """The word and the sentence behind it."""
    if info.name.startswith(_BEAT):
        return HEALTHY, "held by the beat that fires ordinary django-celery-beat rows"
    if execution is None:
        if not known:
            return OTHER, "no schedule uses this name; code of yours holds it with exclusive()"
        if info.lease_id is None:
            return OTHER, "the store does not tell which lease this is"
        if info.acquired_at is None:
            return OTHER, "no running execution has this lease; since when it is held, this role is not told"
        if (now - info.acquired_at).total_seconds() < STARTING:
            return HEALTHY, "its run is about to start"
        return ORPHAN, "no running execution has this lease; its process may have died before it began"
    if execution.state != ExecutionState.RUNNING:
        if execution.ended_at is not None and (now - execution.ended_at).total_seconds() < STARTING:
            return HEALTHY, "its run has just ended"
        return ORPHAN, f"its execution is over ({execution.state}), the lease was not given back"
    silent = (now - (execution.heartbeat_at or execution.started_at or now)).total_seconds()
    if silent > max(conf("SILENCE_GRACE"), 3 * conf("HEARTBEAT")):
        return ORPHAN, f"its process has been silent for {silent:.0f} s"
    if info.expires_in is not None and lock_backends[info.alias].renewable and info.expires_in < ttl / 2:
        return LATE, f"it is renewed every {ttl / 3:g} s and should have been"
    return HEALTHY, ""


def _for_long(execution: Execution, now: datetime) -> bool:
    """Whether it is not just the moment between its last look and ours."""
    return execution.started_at is not None and (now - execution.started_at).total_seconds() > STARTING
