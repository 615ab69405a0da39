"""Releasing by force: an operator ends a lease that its holder does not give back.

Compare-and-delete on the lease that the operator saw: a holder that came later is left alone. The body of the ended
lease goes on until it notices, so a second run can start beside it; the fence still keeps it from writing.

Told as a timeline: the operator looks and sees lease A; A ends and B takes the name; the operator's request arrives
and names A. The store compares, nothing is deleted, and the answer says that B holds the name.
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction

from locks import lock_backends
from locks.base import LeaseInfo
from scheduler.changes import Refused, Who, checked
from scheduler.doctor.bounded import Asked, NotAnswered
from scheduler.limits import TooOften, admit
from scheduler.models import LockRelease
from scheduler.signals import lock_force_released

__all__ = ["NAMELESS", "SESSION_BOUND", "StoreUnreachable", "TooOften", "look", "refuse_unknown", "release"]

logger = logging.getLogger("aegis.releasing")

PATIENCE = 6.0  # seconds for one exchange with a store
SESSION_BOUND = (
    "This lease is a session of the database. Releasing ends that session: the lock is free at once, and its holder "
    "notices at its next renewal or at the end of its run. The database's role must be allowed to end it "
    "(pg_signal_backend, or the same role)."
)
NAMELESS = (
    "The database does not tell which lease this session is, so it cannot be compared and is not released here. Let "
    "the role of this site read pg_stat_activity (GRANT pg_read_all_stats), or end the session itself with "
    "pg_terminate_backend."
)

Result = LockRelease.Result


class StoreUnreachable(Exception):
    """The store did not answer. The message says why, without passwords."""


def look(alias: str, name: str) -> LeaseInfo | None:
    """Who holds ``name`` now, within a bounded time. Raises ``StoreUnreachable``."""
    try:
        return Asked(lambda: lock_backends[alias].inspect(name)).answer(PATIENCE)
    except NotAnswered as why:
        raise StoreUnreachable(str(why)) from why


def refuse_unknown(alias: str) -> None:
    """Raises ``Refused`` for an alias that LOCKS has not."""
    known = sorted(lock_backends.aliases())
    if alias not in known:
        raise Refused(f"There is no strategy {alias!r}. LOCKS defines {', '.join(known)}.")


def release(
    alias: str, name: str, lease_id: UUID, *, why: str, who: Who, seen: LeaseInfo | None = None
) -> LockRelease:
    """End lease ``lease_id`` of ``name`` if it holds it still; the row says what came of it.

    ``seen``: what the operator was shown, for the record. Raises ``Refused`` without a reason, for an alias that
    LOCKS has not, and ``TooOften``. Do not call it in a transaction: the row is stored before the store is asked.
    """
    why = checked(why)
    if not why:
        raise Refused("A release needs a reason; it is kept with who did it.")
    refuse_unknown(alias)
    row = _recorded(alias, name, lease_id, why, who, seen)
    result, detail = _asked(alias, name, lease_id)
    settled = LockRelease.objects.filter(pk=row.pk, result=Result.UNKNOWN).update(result=result, detail=detail[:500])
    if settled != 1:
        raise RuntimeError(f"lock release {row.pk} was settled by somebody else")
    row.refresh_from_db()
    logger.warning(
        "lock %r (%s): release of lease %s by force, asked for by %s (%s): %s. %s",
        name, alias, lease_id, row.who, why, result, detail,
    )  # fmt: skip
    if result == Result.RELEASED:
        lock_force_released.send_robust(LockRelease, release=row)
    return row


def _recorded(alias: str, name: str, lease_id: UUID, why: str, who: Who, seen: LeaseInfo | None) -> LockRelease:
    user = who if getattr(who, "pk", None) else None
    said = user.get_username() if user else str(who or "command line")
    if user is None:
        users = get_user_model()
        user = users._default_manager.filter(**{users.USERNAME_FIELD: said}).first()
    seen = seen if seen is not None and seen.lease_id == lease_id else None
    with transaction.atomic():
        admit(who, "force_release", LockRelease.objects.filter(released_by=user), "asked_at")
        return LockRelease.objects.create(
            name=name, alias=alias, lease_id=lease_id, reason=why, released_by=user, who=said[:150],
            token=seen.grant_no if seen else None, holder=seen.holder[:300] if seen else "",
        )  # fmt: skip


def _asked(alias: str, name: str, lease_id: UUID) -> tuple[str, str]:
    """The result and what is known beside it."""
    try:
        if Asked(lambda: lock_backends[alias].force_release(name, lease_id=lease_id)).answer(PATIENCE):
            return Result.RELEASED, ""
        held = look(alias, name)
    except (NotAnswered, StoreUnreachable) as why:
        return Result.UNKNOWN, f"The store did not answer: {why}"
    if held is None:
        return Result.FREE, ""
    return Result.MOVED, f"The lock is now held with lease {held.lease_id or 'unknown'} by {held.holder}"
