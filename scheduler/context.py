"""RunContext: what the body of an exclusive task is given."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from scheduler.loss.guard import HOME, CommitGuards
from scheduler.once_key import once_key

if TYPE_CHECKING:
    from locks.keepalive import Kept
    from scheduler.delivery import Delivery
    from scheduler.ledger import Started
    from scheduler.loss.reaction import Reaction


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
    manual_key: str | None
    kept: Kept
    guards: CommitGuards

    @classmethod
    def of(cls, delivery: Delivery, execution: Started, kept: Kept, reaction: Reaction | None = None) -> RunContext:
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
            manual_key=delivery.manual_key,
            kept=kept,
            guards=CommitGuards(delivery, execution, kept.check, reaction),
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

    def commit_guard(self, using: str = HOME, finish: bool = False) -> AbstractContextManager[None]:
        """A transaction on database ``using`` that commits only while no later execution has begun.

        >>> with context.commit_guard():
        ...     settle(batch)

            this run          a later run
            BEGIN, proof      start waits ...
            writes, COMMIT    ... begins: reads what was written
            freezes           begins
            BEGIN, proof      StaleToken: nothing is written

        A start waits while its own lease is good, half a minute at most; then it is blocked and comes again.

        With ``finish`` the run is recorded as executed by the last statement of this same transaction: effects and
        outcome share one fate, and a crash after the commit never repeats them. Nothing can be guarded after it.

        Reads that feed a write belong inside. Do nothing slow in it that is no database work: a session that sits
        idle in it for nine tenths of the TTL is ended by the server. ``interrupt`` waits until COMMIT has answered.

        Raises ``StaleToken`` (nothing written), ``LeaseLost`` where somebody else ended the run before ``finish``
        (rolled back), or after a commit that stands and says so; ``RuntimeError`` inside another transaction or
        after ``finish``; ``ValueError`` for ``finish`` on another database than the scheduler's;
        ``ImproperlyConfigured`` under strategy ``none``, which has no fence, for an isolation level other than READ
        COMMITTED, and for a database without the tables of ``aegis_locks``. In another database than the scheduler's
        the fence is raised by the first guard of a run there, not by its start.
        """
        return self.guards.open(using, finish=finish)

    def once_key(self, step: str) -> str:
        """The idempotency key of one step of this tick, for other systems: payments, mail, object stores.

        The same in every attempt, different for another schedule, fire time or step: 46 characters, letters, digits
        and ``-``. A fencing token does not serve for this, it differs between attempts. Raises ``ValueError`` for an
        empty step.
        """
        return once_key(
            step, schedule=self.schedule, fire_time=self.scheduled_for, manual_key=self.manual_key
        )  # fmt: skip
