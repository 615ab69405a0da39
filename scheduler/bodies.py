"""Bodies: what an audit row tells of when a body was inside. Pure.

The database stamps when its execution started (s) and ended (f); the worker sends how long the body ran
(r), measured inside. So the body lies in the *outer* interval [s, f] and certainly fills the *certain*
interval [f - r, s + r], which is empty where stamping took longer than the body. Two workers' clocks are
never compared. Without an end stamp:

- still running: certain to the last heartbeat, and open beyond it;
- abandoned and never heard of again: to the last heartbeat, and no further (else every killed worker would
  be a possible overlap). A zombie that is never heard of again is invisible here; only its effects can show
  it;
- abandoned and heard of later: to that stamp.

Both of these begin at s, the only stamp there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from scheduler.intervals import Interval

RUNNING, LOST, ABANDONED = "running", "lost", "abandoned"

# The end of an interval that is open.
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What an audit row tells of its body. Stamps are the database's; ``ran`` is in seconds.

    ``forced``: somebody has released its lease by force.
    """

    execution_id: int
    tick_id: int
    attempt: int
    lock_name: str
    lock_alias: str
    worker: str
    guarded: bool
    began: bool
    state: str
    started_at: datetime
    ended_at: datetime | None
    ran: float | None
    heartbeat_at: datetime | None
    returned_at: datetime | None
    forced: bool

    @property
    def outer(self) -> Interval:
        """The body lies in here."""
        return self._interval(self.started_at, self._known_end or NEVER)

    @property
    def certain(self) -> Interval:
        """The body fills this; empty where it was shorter than the stamping."""
        end = self._known_end
        if end is None:
            return self._interval(self.started_at, self.heartbeat_at or self.started_at)
        if self.ran is not None:
            ran = timedelta(microseconds=math.floor(self.ran * 1e6))
            return self._interval(max(self.started_at, end - ran), min(end, self.started_at + ran))
        if self.state == ABANDONED:
            return self._interval(self.started_at, end)
        return self._interval(end, end)

    @property
    def _known_end(self) -> datetime | None:
        """The last that is known of the body; None while it runs."""
        if self.state == RUNNING:
            return None
        # The end stamp of an abandoned execution is the reaper's: it says nothing about the body.
        known = self.ended_at if self.state != ABANDONED else self.heartbeat_at
        return max(t for t in (known, self.returned_at, self.started_at) if t is not None)

    def _interval(self, start: datetime, end: datetime) -> Interval:
        return Interval(name=self.lock_name, id=self.execution_id, start=start, end=end)
