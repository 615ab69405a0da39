"""Enter a body and say what it came back with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate

from locks import LeaseLost, StaleToken
from locks.clock import boottime
from scheduler.context import RunContext
from scheduler.error_text import describe
from scheduler.loss.main_thread import told_to_end
from scheduler.loss.reaction import Reaction
from scheduler.states import ExecutionState

# Exit status of a forked child that left the body.
LEFT_BY_A_FORK = 70

CUT_SHORT = (
    "the process was told to end in the middle of the body: hard time limit, cold shutdown, revoked with terminate, "
    "or cancelled because the broker was lost"
)

Body = Callable[[RunContext], Any]


class RetryLater(Retry):
    """``self.retry()`` of a delivered tick: nothing is published, the tick itself waits ``when`` seconds.

    Celery's own retry publishes the message before it raises. Timeline of what that would do: attempt 1 publishes
    attempt 2; another worker takes it while attempt 1 still holds the lease, is refused, and the message is gone.
    """

    @property
    def countdown(self) -> float:
        """Seconds until the next attempt. Kept in Celery's own ``when``: a worker's child pickles this exception."""
        return float(self.when or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """How a body ended: the state that it would have if the lease held, and the value or the exception.

    ``cut_short``: it did not end by itself. Had its process been quicker to die, the reaper would have recorded it as
    abandoned; so the same rule holds for another attempt.
    """

    state: ExecutionState
    ran: float
    value: Any = None
    raised: BaseException | None = None
    reason: str = ""
    error: str = ""
    countdown: float = 0.0
    cut_short: bool = False


def enter(body: Body, context: RunContext, reaction: Reaction) -> Returned:
    """Call the body and measure its own duration in seconds on a clock that goes on while a machine sleeps.

    Nothing is raised: Celery's control flow, errors and even ``SystemExit`` (a hard time limit, a cold shutdown)
    come back as a value, so that finish and release follow; the caller raises them again afterwards. So does a loss
    that ``reaction`` raises at the body's very last instruction.
    """
    context.guards.began = began = boottime()
    process = os.getpid()
    try:
        value = reaction.call(context.kept, lambda: _leave_forks(process, body, context))
    except RetryLater as retry:
        if isinstance(retry.exc, LeaseLost | StaleToken):  # by autoretry_for=[Exception]; it is no less lost
            return _stopped(began, retry.exc, context)
        return _ended(began, retry, ExecutionState.RETRIED, countdown=retry.countdown)
    except (LeaseLost, StaleToken) as lost:
        return _stopped(began, lost, context)
    except Ignore as ignored:
        return _ended(began, ignored, ExecutionState.EXECUTED, reason="the body asked Celery to ignore its result")
    except Reject as rejected:
        return _ended(began, rejected, ExecutionState.FAILED, reason="the body rejected the message")
    except BaseException as failure:  # not only Exception: SystemExit must be recorded too
        cut = told_to_end() or isinstance(failure, WorkerShutdown | WorkerTerminate)
        return _ended(began, failure, ExecutionState.FAILED, reason=CUT_SHORT if cut else "", cut_short=cut)
    return Returned(state=ExecutionState.EXECUTED, ran=boottime() - began, value=value)


def _stopped(began: float, lost: LeaseLost | StaleToken, context: RunContext) -> Returned:
    """Lost if it was this run's own lease or token. A body may hold others: losing one of those is its failure."""
    if lost.name not in ("", context.lock_name):
        return _ended(began, lost, ExecutionState.FAILED)
    what = "a later execution has started" if isinstance(lost, StaleToken) else "the lease is over"
    return _ended(began, lost, ExecutionState.LOST, reason=f"the body stopped: {what}")


def _leave_forks(process: int, body: Body, context: RunContext) -> Any:
    """Call the body. A child that it forked and that comes back out of it, by an exception or a return, ends here.

    It is a copy of the runner: going on, it would end its parent's execution and give its lease back, while the
    parent is still inside.
    """
    try:
        return body(context)
    finally:
        if os.getpid() != process:
            os._exit(LEFT_BY_A_FORK)


def _ended(began: float, raised: BaseException, state: ExecutionState, **facts: Any) -> Returned:
    return Returned(state=state, ran=boottime() - began, raised=raised, error=describe(raised), **facts)
