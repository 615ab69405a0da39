"""RunContext: what the body of an exclusive task is given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from locks.keepalive import Kept
    from scheduler.delivery import Delivery
    from scheduler.ledger import Started


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run, as its body sees it.

    ``scheduled_for`` is the nominal fire time (UTC), never "now": use it for periods, file names and keys.
    ``attempt`` counts the starts of this tick from 1. ``fencing_token`` grows with every start under the lock
    name; it is None under strategy ``none``.
    """

    tick_id: int
    schedule: str
    scheduled_for: datetime
    attempt: int
    lock_name: str
    lock_alias: str
    fencing_token: int | None
    execution_id: int
    worker: str
    kept: Kept

    @classmethod
    def of(cls, delivery: Delivery, execution: Started, kept: Kept) -> RunContext:
        """The context of one started delivery."""
        return cls(
            tick_id=delivery.tick_id,
            schedule=delivery.schedule,
            scheduled_for=delivery.fire_time,
            attempt=delivery.attempt,
            lock_name=delivery.lock_name,
            lock_alias=delivery.alias,
            fencing_token=execution.token,
            execution_id=execution.id,
            worker=delivery.worker,
            kept=kept,
        )

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be over."""
        return self.kept.lost

    def check(self) -> None:
        """Raise ``LeaseLost`` once the lease is no longer ours; call it between steps and before each effect.

        It is advice, not a proof: a pause can fall between the check and the effect.
        """
        self.kept.check()
