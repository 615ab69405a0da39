"""Plain rows that the figures are counted from. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from scheduler.states import ExecutionState

# A schedule, also one that was deleted; a run without one goes by its task.
Key = tuple[int | None, str]


class TickRow(NamedTuple):
    """One fire time, or ``number`` like ones; ``missed`` counts the fire times that misfired ones stand for."""

    id: int
    schedule_id: int | None
    schedule: str
    task: str
    fire_time: datetime
    state: str
    outcome: str
    lock_name: str
    strategy: str
    guarded: bool
    missed: int
    number: int = 1

    @property
    def key(self) -> Key:
        """Whose tick it is."""
        return self.schedule_id, self.schedule or self.task


class RefusedRow(NamedTuple):
    """How many tries of a schedule were refused in one way; ``start`` is that of the bin of their ticks."""

    schedule_id: int | None
    schedule: str
    task: str
    state: str
    number: int
    start: datetime | None = None
    strategy: str = ""
    guarded: bool = True

    @property
    def key(self) -> Key:
        """As of its ticks."""
        return self.schedule_id, self.schedule or self.task


class TryRow(NamedTuple):
    """One worker's try at a tick. Nothing that a task was given or raised: that may be secret.

    ``due`` is when its wait began: the fire time; of a run by hand, which may be for one of long ago, when it was
    asked for.
    """

    id: int
    tick_id: int
    schedule_id: int | None
    schedule: str
    task: str
    fire_time: datetime
    attempt: int
    state: str
    reason: str
    worker: str
    pid: int | None
    token: int | None
    lock_name: str
    strategy: str
    guarded: bool
    recorded_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None
    ended_at: datetime | None
    returned_at: datetime | None
    ran: float | None
    holder_id: int | None
    due: datetime

    @property
    def label(self) -> str:
        """What people call it."""
        return self.schedule or self.task

    @property
    def at(self) -> datetime:
        """When it started, or was refused."""
        return self.started_at or self.recorded_at

    @property
    def until(self) -> datetime | None:
        """The last that is known of it; None while it runs. The reaper's stamp says nothing about a body."""
        if self.state == ExecutionState.RUNNING:
            return None
        known = self.heartbeat_at if self.state == ExecutionState.ABANDONED else self.ended_at
        return max(stamp for stamp in (known, self.returned_at, self.at) if stamp is not None)

    @property
    def who(self) -> str:
        """Its worker and its token."""
        worker = self.worker or "an unnamed worker"
        return worker if self.token is None else f"{worker} token {self.token}"
