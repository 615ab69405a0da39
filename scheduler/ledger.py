"""The ledger: every state change of an execution, by one statement each, on the process's own connection.

A database error here is never taken for an answer. ``start`` waits for row locks while its lease is good, is sent
once more after a lost reply and recognised by its lease id; every other statement raises ``LedgerUnavailable``, the
tick stays open or the execution stays running, and the ticker or the reaper settles it once the database is back.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from locks import Lease
from locks.clock import boottime
from locks.connection import execute
from scheduler import starvation
from scheduler.conf import conf
from scheduler.delivery import Delivery
from scheduler.error_text import storable
from scheduler.exceptions import LedgerUnavailable, TickGone
from scheduler.statements import finish, refuse, start
from scheduler.states import ExecutionState

logger = logging.getLogger("aegis.ledger")

LONGEST_WAIT = 30.0  # seconds that a start waits for row locks; after it the delivery comes again
LOCKED = "somebody, such as an open guard of a former run, kept the fence or the tick locked"
MAX_REASON = 500
MAX_ERROR = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A row of the ledger for one delivery: a running execution, or a refusal with its reason."""

    id: int
    state: ExecutionState
    token: int | None = None
    started_at: datetime | None = None
    reason: str = ""
    closed: bool = False  # a refusal has closed its tick
    lease_id: UUID | None = None

    @property
    def running(self) -> bool:
        return self.state is ExecutionState.RUNNING


def begin(
    delivery: Delivery, lease: Lease, *, acquire_ms: float, fenced: bool, hurried: Callable[[], bool] = lambda: False
) -> Started:
    """Claim the tick, raise the fence and store the execution: the only commit point of a run.

    Returns the row: running, refused, or blocked where the fence or the tick was locked for as long as the lease was
    good, or half a minute, or until ``hurried`` said that there is no time to wait. Raises ``TickGone`` where the
    tick or the fence row is missing, and ``LedgerUnavailable`` where the outcome is unknown after one more try: the
    caller must not run the body.
    """
    parameters = {
        **delivery.keys,
        "grant": lease.grant_no,
        "numbering": lease.numbering,
        "lease": lease.lease_id,
        "acquire_ms": acquire_ms,
    }
    give_up_at = min(lease.trusted_until, boottime() + min(lease.ttl, LONGEST_WAIT))
    statement = start.FENCED if fenced else start.UNFENCED

    def over() -> bool:
        return boottime() >= give_up_at or hurried()

    rows = _claim(statement, parameters, over)
    if rows is None:
        return blocked(delivery, LOCKED, acquire_ms=acquire_ms)
    if not rows:
        raise TickGone(
            f"tick {delivery.tick_id} or the fence row of lock name {delivery.lock_name!r} does not exist; "
            "run migrate, or look whether the tick was pruned"
        )
    row_id, state, token, started_at, reason = rows[0]
    return Started(
        id=row_id,
        state=ExecutionState(state),
        token=token,
        started_at=started_at,
        reason=reason,
        lease_id=lease.lease_id,
    )


def _claim(sql: str, parameters: Mapping[str, Any], over: Callable[[], bool]) -> list[tuple[Any, ...]] | None:
    """The row that a start stored, now or when it was sent before; else it is sent anew. ``None``: as ``_start``."""
    rows = _start(sql, parameters, over)
    if rows == []:
        return _twice(start.READ, {"lease": parameters["lease"]}) or _start(sql, parameters, over)
    return rows


def _start(sql: str, parameters: Mapping[str, Any], over: Callable[[], bool]) -> list[tuple[Any, ...]] | None:
    """As ``_twice``, waiting for row locks until that is ``over``; ``None``: for certain not begun.

    The server gives up each wait after a second, having done nothing. One whose answer was lost may have begun: it is
    found again by its lease id, or is unknown for good.
    """
    lost = False
    while True:
        try:
            return execute(sql, parameters)
        except psycopg.errors.LockNotAvailable as locked:
            if not over():
                continue
            if not lost:
                return None
            raise LedgerUnavailable(_describe(locked)) from locked
        except psycopg.OperationalError as trouble:
            if lost:
                raise LedgerUnavailable(_describe(trouble)) from trouble
            lost = True
            logger.warning("the ledger did not answer, asking again: %s", _describe(trouble))
        except psycopg.Error as refusal:
            raise LedgerUnavailable(_describe(refusal)) from refusal


def refused(delivery: Delivery, *, acquire_ms: float) -> Started:
    """Store a refusal; it closes the tick, or lets it wait, only on evidence (``statements.refuse``)."""
    parameters = {**delivery.keys, "acquire_ms": acquire_ms}
    try:
        rows = _once(refuse.REFUSED, parameters)
    except LedgerUnavailable as trouble:
        if not isinstance(trouble.__cause__, psycopg.errors.UniqueViolation):
            raise
        rows = _once(refuse.REFUSED, parameters)  # another tick of the schedule has just taken the only place
    if not rows:
        raise TickGone(f"tick {delivery.tick_id} does not exist")
    row_id, state, reason, became, before = rows[0]
    starvation.notice(delivery.schedule, before)
    return Started(id=row_id, state=ExecutionState(state), reason=reason, closed=became == "closed")


def blocked(delivery: Delivery, why: object, *, acquire_ms: float | None = None) -> Started:
    """Store that the lock store could not answer; the tick stays open."""
    reason = storable(str(why), MAX_REASON) or type(why).__name__
    rows = _once(refuse.BLOCKED, {**delivery.keys, "acquire_ms": acquire_ms, "reason": reason})
    if not rows:
        raise TickGone(f"tick {delivery.tick_id} does not exist")
    return Started(id=rows[0][0], state=ExecutionState.BLOCKED, reason=reason)


def end(execution: Started, state: ExecutionState, *, countdown: float = 0.0, **facts: Any) -> bool:
    """End a running execution and move its tick; False where somebody else ended it before.

    ``facts``: ``ran`` (seconds in the body), ``reason``, ``error``, ``began``, ``cut_short`` (the process has to end:
    as after a crash, the schedule's ``max_attempts`` says whether there is another attempt). A False is recorded
    beside the terminal state, so that an overlap by a body that was given up too early stays visible.
    """
    parameters = _ending(execution, state, countdown=countdown, **facts)
    if _twice(_statement(state, facts), parameters):
        return True
    late = _once(finish.RETURNED, parameters)
    if late:
        logger.warning(
            "execution %s came back as %s after it was abandoned", execution.id, state.value,
            extra={"action": "returned_late", "execution": execution.id},
        )  # fmt: skip
        return False
    return _ended_as(execution.lease_id, state)


def end_within(cursor: Any, execution: Started, *, ran: float) -> bool:
    """End a running execution as executed in the caller's transaction; False where somebody else ended it before."""
    cursor.execute(finish.CLOSE, _ending(execution, ExecutionState.EXECUTED, ran=ran))
    return cursor.fetchone() is not None


def is_executed(execution: Started) -> bool:
    """Whether the row stands as executed: for a commit whose answer never came."""
    return _ended_as(execution.lease_id, ExecutionState.EXECUTED)


def end_patiently(execution: Started, state: ExecutionState, **facts: Any) -> bool:
    """As ``end``, asking again for up to FINISH_PATIENCE seconds while the database is away; not what it refuses.

    A body that ended during an outage has ended all the same; its lease is still renewed while this waits, so
    nobody is let in, and the row does not have to be given up as abandoned.
    """
    give_up = boottime() + conf("FINISH_PATIENCE")
    pause = 0.1
    while True:
        try:
            return end(execution, state, **facts)
        except LedgerUnavailable as trouble:
            refused = isinstance(trouble.__cause__, psycopg.DataError | psycopg.IntegrityError)
            if refused or boottime() + pause > give_up:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 2.0)


def _ending(execution: Started, state: ExecutionState, *, countdown: float = 0.0, **facts: Any) -> dict[str, Any]:
    """The parameters of the statements that end an execution."""
    return {
        "id": execution.id,
        "lease": execution.lease_id,
        "state": state.value,
        "ran": facts.get("ran"),
        "reason": storable(facts.get("reason", ""), MAX_REASON),
        "error": storable(facts.get("error", ""), MAX_ERROR),
        "began": facts.get("began", True),
        "countdown": countdown,
    }


def _statement(state: ExecutionState, facts: Mapping[str, Any]) -> str:
    if state is ExecutionState.RETRIED:
        return finish.RETRY
    if state is ExecutionState.LOST and not facts.get("began", True):
        return finish.GIVE_BACK
    if state is ExecutionState.LOST or facts.get("cut_short"):
        return finish.SPEND
    return finish.CLOSE


def _ended_as(lease_id: UUID | None, state: ExecutionState) -> bool:
    """Whether the row already stands in ``state``: our own statement, sent twice after a lost reply."""
    rows = _once(start.READ, {"lease": lease_id})
    return bool(rows) and rows[0][1] == state.value


def beat_hearts(ids: Iterable[int]) -> set[int]:
    """Stamp running executions as alive; returns those that were stamped."""
    return {row[0] for row in _once(finish.HEARTBEAT, {"ids": list(ids)})}


def _once(sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        return execute(sql, parameters)
    except psycopg.Error as trouble:
        raise LedgerUnavailable(_describe(trouble)) from trouble


def _twice(sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Send once more where the connection broke: every statement sent by this is idempotent for its lease id."""
    try:
        return execute(sql, parameters)
    except psycopg.OperationalError as trouble:
        logger.warning("the ledger did not answer, asking again: %s", _describe(trouble))
    except psycopg.Error as refusal:
        raise LedgerUnavailable(_describe(refusal)) from refusal
    return _once(sql, parameters)


def _describe(trouble: psycopg.Error) -> str:
    """One line, without the connection string that some driver errors carry."""
    code = trouble.sqlstate or "no answer"
    return f"the ledger's database: {type(trouble).__name__} ({code}), process {os.getpid()}"
