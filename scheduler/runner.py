"""Carry one delivered tick to its end: acquire, start, run, finish, release.

Read this file first. Whatever goes wrong, one of these holds: the body ran under a lease and its execution says
how it ended; or the body did not run and a row says why; or the process died, and the reaper says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
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
from scheduler.loss import OnLost, cannot, must_stop, reaction_to, shield
from scheduler.states import ExecutionState

logger = logging.getLogger("aegis.runner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a delivery: the row, and what the body came back with where it was entered."""

    delivery: Delivery
    execution: Started
    state: ExecutionState
    returned: Returned | None = None


@shield()
def run(delivery: Delivery, body: Body, on_lost: OnLost = OnLost.CHECK) -> Outcome:
    """Run ``body`` for one delivery if, and only if, the lease and the tick are both ours.

    Only inside the body does ``on_lost`` strike; everything else here is shielded from it. Raises
    ``LedgerUnavailable`` where the database cannot say what happened; no body is entered then.
    """
    held = _acquire(delivery, on_lost)
    if isinstance(held, Outcome):
        return held
    try:
        execution = _start(delivery, held)
        if not execution.running:
            return _unrun(delivery, execution)
        loss = reaction_to(on_lost)
        with keep_alive(held.backend, held.lease, loss.lost, loss.renewed) as kept, heartbeats(execution.id):
            if _is_over(kept.lease):
                return _give_back(delivery, execution)
            context = RunContext.of(delivery, execution, kept, loss)
            returned = enter(body, context, loss)
            return _finish(delivery, held, execution, returned, context)
    finally:
        _release_quietly(held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The lease of this run, the backend that gave it, and how long that took."""

    backend: Any
    lease: Lease
    acquire_ms: float


def _acquire(delivery: Delivery, on_lost: OnLost) -> Held | Outcome:
    """The lease, or the row that says why there is none. Unknown is blocked: neither free nor busy."""
    asked, lease_id = boottime(), uuid4()
    try:
        backend = lock_backends[delivery.alias]
        backend.clean_ttl(delivery.ttl)
    except (InvalidLockBackend, ValueError) as unknown:
        return _unrun(delivery, ledger.blocked(delivery, unknown))
    if refusal := cannot(on_lost, backend):
        return _unrun(delivery, ledger.blocked(delivery, refusal))
    try:
        lease = backend.acquire(delivery.lock_name, ttl=delivery.ttl, lease_id=lease_id)
    except LockUnavailable as unknown:
        backend.withdraw(delivery.lock_name, lease_id=lease_id)
        return _unrun(delivery, ledger.blocked(delivery, unknown, acquire_ms=_ms_since(asked)))
    if lease is None:
        failpoint("after-refusal")
        return _unrun(delivery, ledger.refused(delivery, acquire_ms=_ms_since(asked)))
    return Held(backend=backend, lease=lease, acquire_ms=_ms_since(asked))


def _start(delivery: Delivery, held: Held) -> Started:
    """Claim the tick and raise the fence, unless the lease is over already."""
    failpoint("after-acquire")
    if _is_over(held.lease):
        reason = "the lease ended before the start was sent"
        return ledger.blocked(delivery, reason, acquire_ms=held.acquire_ms)
    execution = ledger.begin(
        delivery, held.lease, acquire_ms=held.acquire_ms, fenced=held.backend.exclusive, hurried=must_stop
    )
    failpoint("after-start")
    return execution


def _give_back(delivery: Delivery, execution: Started) -> Outcome:
    """The lease ended between start and body: the attempt is not spent, the tick is delivered again."""
    reason = "the lease ended before the body was entered"
    ledger.end(execution, ExecutionState.LOST, began=False, reason=reason)
    return Outcome(delivery=delivery, execution=execution, state=ExecutionState.LOST)


def _finish(delivery: Delivery, held: Held, execution: Started, returned: Returned, context: RunContext) -> Outcome:
    """Store how the body ended; where the reaper was first, the run counts as lost."""
    failpoint("after-body")
    if context.guards.finished:
        return _finished_by_guard(delivery, execution, returned)
    state, reason = _verdict(returned, held.backend, context)
    recorded = ledger.end_patiently(
        execution, state, ran=returned.ran, reason=reason, error=returned.error, countdown=returned.countdown,
        cut_short=returned.cut_short,
    )  # fmt: skip
    if not recorded and context.guards.in_doubt and ledger.is_executed(execution):
        return _finished_by_guard(delivery, execution, returned)
    state = state if recorded else ExecutionState.LOST
    return Outcome(delivery=delivery, execution=execution, state=state, returned=returned)


def _finished_by_guard(delivery: Delivery, execution: Started, returned: Returned) -> Outcome:
    """The body's own guarded commit has recorded its end: nothing that came later changes it."""
    if returned.raised is not None:
        logger.warning(
            "execution %s is executed, and its body raised after that: %s", execution.id, returned.error,
            extra={"action": "raised_after_finish", "execution": execution.id},
        )  # fmt: skip
    returned = replace(returned, state=ExecutionState.EXECUTED)
    return Outcome(delivery=delivery, execution=execution, state=ExecutionState.EXECUTED, returned=returned)


def _is_over(lease: Lease) -> bool:
    """Whether this process must no longer believe in the lease, whatever the store says."""
    return boottime() >= lease.trusted_until


def _verdict(returned: Returned, backend: Any, context: RunContext) -> tuple[ExecutionState, str]:
    """A body that outlived its lease is lost, whatever it returned; what it committed under guard stands."""
    kept, commits = context.kept, context.guards.commits
    if kept.lost or _is_over(kept.lease):
        stands = f"; {commits} guarded commits stand" if commits else ""
        return ExecutionState.LOST, f"the lease ended before the body did{stands}"
    try:
        still_ours = backend.verify(kept.lease) if backend.verifies else True
    except LockUnavailable as unknown:
        return ExecutionState.LOST, f"whether the lease was still ours could not be verified: {unknown}"
    if not still_ours:
        return ExecutionState.LOST, "the lease was not ours any more when the body had returned"
    return returned.state, returned.reason


def _release_quietly(held: Held) -> None:
    """Give the lease back; trouble is logged, never raised: it must not hide what the body returned."""
    failpoint("before-release")
    try:
        if not held.backend.release(held.lease):
            logger.warning(
                "lock name %s was not ours any more when it was given back: another run may have been inside",
                held.lease.name, extra={"action": "release_late", "lock_name": held.lease.name},
            )  # fmt: skip
    except LockUnavailable as trouble:
        logger.warning(
            "lock name %s was not released and is held until its TTL is over: %s", held.lease.name, trouble,
            extra={"action": "release_failed", "lock_name": held.lease.name},
        )  # fmt: skip


def _unrun(delivery: Delivery, execution: Started) -> Outcome:
    return Outcome(delivery=delivery, execution=execution, state=execution.state)


def _ms_since(start: float) -> float:
    return (boottime() - start) * 1000
