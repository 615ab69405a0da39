"""Carry one delivered tick to its end: acquire, start, run, finish, release.

Read this file first. Whatever goes wrong, one of these holds: the body ran under a lease and its execution says
how it ended; or the body did not run and a row says why; or the process died, and the reaper says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from locks import InvalidLockBackend, Lease, LockUnavailable, lock_backends
from locks.clock import boottime
from locks.keepalive import keep_alive
from scheduler import ledger
from scheduler.body import Body, Returned, enter
from scheduler.context import RunContext
from scheduler.delivery import Delivery
from scheduler.failpoints import failpoint
from scheduler.heartbeat import heartbeats
from scheduler.ledger import Started
from scheduler.states import ExecutionState

logger = logging.getLogger("aegis.runner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a delivery: the row, and what the body came back with where it was entered."""

    delivery: Delivery
    execution: Started
    state: ExecutionState
    returned: Returned | None = None


def run(delivery: Delivery, body: Body) -> Outcome:
    """Run ``body`` for one delivery if, and only if, the lease and the tick are both ours.

    Raises ``LedgerUnavailable`` where the database cannot say what happened; no body is entered then.
    """
    try:
        backend = lock_backends[delivery.alias]
        backend.clean_ttl(delivery.ttl)
    except (InvalidLockBackend, ValueError) as unknown:
        return _unrun(delivery, ledger.blocked(delivery, unknown))
    lease_id, asked = uuid4(), boottime()
    try:
        lease = backend.acquire(delivery.lock_name, ttl=delivery.ttl, lease_id=lease_id)
    except LockUnavailable as unknown:
        backend.withdraw(delivery.lock_name, lease_id=lease_id)
        return _unrun(delivery, ledger.blocked(delivery, unknown, acquire_ms=_ms_since(asked)))
    acquire_ms = _ms_since(asked)
    if lease is None:
        failpoint("after-refusal")
        return _unrun(delivery, ledger.refused(delivery, acquire_ms=acquire_ms))
    try:
        failpoint("after-acquire")
        if boottime() >= lease.trusted_until:
            return _unrun(
                delivery,
                ledger.blocked(delivery, "the lease ended before the start was sent", acquire_ms=acquire_ms),
            )
        execution = ledger.begin(delivery, lease, acquire_ms=acquire_ms, fenced=backend.exclusive)
        failpoint("after-start")
        return _carry(delivery, backend, lease, execution, body) if execution.running else _unrun(delivery, execution)
    finally:
        _release_quietly(backend, lease)


def _carry(delivery: Delivery, backend: Any, lease: Lease, execution: Started, body: Body) -> Outcome:
    """From a running execution to its end, while the lease is renewed and the process shows that it lives."""
    with keep_alive(backend, lease) as kept, heartbeats(execution.id):
        if boottime() >= kept.lease.trusted_until:
            reason = "the lease ended before the body was entered"
            ledger.end(execution, ExecutionState.LOST, began=False, reason=reason)
            return Outcome(delivery=delivery, execution=execution, state=ExecutionState.LOST)
        returned = enter(body, RunContext.of(delivery, execution, kept))
        failpoint("after-body")
        state, reason = _verdict(returned, backend, kept)
        recorded = ledger.end_patiently(
            execution,
            state,
            ran=returned.ran,
            reason=reason,
            error=returned.error,
            countdown=returned.countdown,
        )
    return Outcome(
        delivery=delivery,
        execution=execution,
        state=state if recorded else ExecutionState.LOST,
        returned=returned,
    )


def _verdict(returned: Returned, backend: Any, kept: Any) -> tuple[ExecutionState, str]:
    """A body that outlived its lease is lost, whatever it returned."""
    if kept.lost or boottime() >= kept.lease.trusted_until:
        return ExecutionState.LOST, "the lease ended before the body did"
    try:
        still_ours = backend.verify(kept.lease) if backend.verifies else True
    except LockUnavailable as unknown:
        return ExecutionState.LOST, f"whether the lease was still ours could not be verified: {unknown}"
    if not still_ours:
        return ExecutionState.LOST, "another claim of this name was made while the body ran"
    return returned.state, returned.reason


def _release_quietly(backend: Any, lease: Lease) -> None:
    """Give the lease back; trouble is logged, never raised: it must not hide what the body returned."""
    try:
        backend.release(lease)
    except LockUnavailable as trouble:
        logger.warning(
            "lock name %s was not released and is held until its TTL is over: %s", lease.name, trouble,
            extra={"action": "release_failed", "lock_name": lease.name},
        )  # fmt: skip


def _unrun(delivery: Delivery, execution: Started) -> Outcome:
    return Outcome(delivery=delivery, execution=execution, state=execution.state)


def _ms_since(start: float) -> float:
    return (boottime() - start) * 1000
