"""The two state machines, as tables.

A *tick* is one fire time of one schedule; an *execution* is one worker's try at a tick and the audit row.
Every move between states is one guarded UPDATE whose row count is checked (``scheduler.statements``); these
tables say which moves exist, and the schema's CHECK constraints say which values do.
"""

from __future__ import annotations

from django.db.models import TextChoices


class TickState(TextChoices):
    """Where one fire time of one schedule stands."""

    # Stored, not yet seen to be published.
    PLANNED = "planned", "Planned"
    # Published at least once; nobody has begun it.
    DISPATCHED = "dispatched", "Dispatched"
    # Refused while another body ran under its lock name; the end of that body dispatches it again (queue one).
    WAITING = "waiting", "Waiting"
    # An execution has claimed it.
    STARTED = "started", "Started"
    # Over, with an outcome.
    CLOSED = "closed", "Closed"
    # Nobody began it in time, with the reason.
    MISFIRED = "misfired", "Misfired"


class ExecutionState(TextChoices):
    """What became of one worker's try at a tick."""

    # Refused before the body: the name is held by another.
    PREVENTED = "prevented", "Prevented"
    # Refused before the body: this tick already started elsewhere.
    DUPLICATE = "duplicate", "Duplicate refused"
    # Refused before the body: the tick was over without a run, its deadline had passed, or its schedule was off.
    LATE = "late", "Late"
    # Refused before the body: the lock store could not say whether the name is free, or a guard was open too long.
    BLOCKED = "blocked", "Blocked"
    # The body may be inside.
    RUNNING = "running", "Running"
    EXECUTED = "executed", "Executed"
    FAILED = "failed", "Failed"
    # Ended by ``self.retry()``: the tick waits for its next attempt.
    RETRIED = "retried", "Retried"
    # The lease ended before the body did.
    LOST = "lost", "Lost"
    # The process fell silent and its lease is gone; closed by the reaper.
    ABANDONED = "abandoned", "Abandoned"


class TickOutcome(TextChoices):
    """How a closed or misfired tick ended; empty while it is open."""

    EXECUTED = "executed", "Executed"
    FAILED = "failed", "Failed"
    LOST = "lost", "Lost"
    ABANDONED = "abandoned", "Abandoned"
    PREVENTED = "prevented", "Prevented"
    BLOCKED = "blocked", "Blocked"
    REVOKED = "revoked", "Revoked"
    MISFIRED = "misfired", "Misfired"


OPEN_TICKS = (TickState.PLANNED, TickState.DISPATCHED, TickState.WAITING, TickState.STARTED)
REFUSED = (ExecutionState.PREVENTED, ExecutionState.DUPLICATE, ExecutionState.LATE, ExecutionState.BLOCKED)
ENDED = (
    ExecutionState.EXECUTED,
    ExecutionState.FAILED,
    ExecutionState.RETRIED,
    ExecutionState.LOST,
    ExecutionState.ABANDONED,
)

_UNBEGUN = frozenset(
    {TickState.DISPATCHED, TickState.WAITING, TickState.STARTED, TickState.CLOSED, TickState.MISFIRED}
)
TICK_MOVES: dict[TickState, frozenset[TickState]] = {
    TickState.PLANNED: _UNBEGUN,
    TickState.DISPATCHED: _UNBEGUN - {TickState.DISPATCHED},
    TickState.WAITING: _UNBEGUN - {TickState.WAITING},
    TickState.STARTED: frozenset({TickState.CLOSED, TickState.DISPATCHED}),
    TickState.CLOSED: frozenset(),
    TickState.MISFIRED: frozenset(),
}

EXECUTION_MOVES: dict[ExecutionState, frozenset[ExecutionState]] = {
    ExecutionState.RUNNING: frozenset(ENDED),
    **{state: frozenset() for state in (*REFUSED, *ENDED)},
}
