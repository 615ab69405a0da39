"""Guarded commits: transactions of a run that a former holder cannot commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, connections

from locks import LeaseLost, fencing
from locks.clock import boottime
from locks.fencing import Proof
from scheduler import ledger
from scheduler.loss.main_thread import shield
from scheduler.loss.reaction import Reaction

if TYPE_CHECKING:
    from scheduler.delivery import Delivery
    from scheduler.ledger import Started

# The database that holds the executions and in which start raises the fence.
HOME = DEFAULT_DB_ALIAS


class CommitGuards:
    """The guarded commits of one run.

    ``commits`` counts those that are known to stand. ``finished``: one of them has recorded the end of the run, and
    nobody else may. ``in_doubt``: the answer to such a commit never came; the ledger knows.
    """

    def __init__(
        self, delivery: Delivery, execution: Started, check: Callable[[], None], reaction: Reaction | None = None
    ) -> None:
        self.began = boottime()
        self.commits = 0
        self.finished = False
        self.in_doubt = False
        self._delivery = delivery
        self._execution = execution
        self._check = check
        self._reaction = reaction or Reaction()
        self._carried: set[str] = {HOME}

    @contextmanager
    def open(self, using: str, *, finish: bool) -> Iterator[None]:
        """One guarded commit. See ``RunContext.commit_guard``."""
        proof = self._proof()
        self._refuse(using, finish=finish)
        with shield():
            self._carry(proof, using)
            with fencing.proven(proof, using=using):
                yield
                if finish:
                    self._finish(using)
            self._stands(finish=finish)

    def _proof(self) -> Proof:
        execution, delivery = self._execution, self._delivery
        if execution.token is None or execution.lease_id is None:
            raise fencing.no_fence(delivery.lock_name, delivery.alias)
        return Proof(
            name=delivery.lock_name, token=execution.token, lease_id=execution.lease_id, ttl=delivery.ttl
        )  # fmt: skip

    def _refuse(self, using: str, *, finish: bool) -> None:
        if finish and using != HOME:
            raise ValueError(
                f"commit_guard(using={using!r}, finish=True): the end of a run is recorded in database {HOME!r} and "
                f"cannot be committed together with effects in another one. Guard the effects in {using!r} without "
                "finish."
            )
        if self.finished:
            raise RuntimeError(
                "commit_guard() after commit_guard(finish=True): this run is recorded as executed, and what it still "
                "wrote would belong to nobody. Make the finishing guard the last one."
            )

    def _carry(self, proof: Proof, using: str) -> None:
        """Raise the fence of another database, on its first use in this run."""
        if using not in self._carried:
            fencing.carry(proof, using=using, check=self._check)
            self._carried.add(using)

    def _finish(self, using: str) -> None:
        """The last statement of the transaction. No row: somebody else has ended the run, so nothing is committed."""
        with connections[using].cursor() as cursor:
            recorded = ledger.end_within(cursor, self._execution, ran=boottime() - self.began)
        if not recorded:
            raise LeaseLost(
                f"Execution {self._execution.id} was ended by somebody else; its guarded commit was rolled back.",
                name=self._delivery.lock_name,
                alias=self._delivery.alias,
            )
        self.in_doubt = True

    def _stands(self, *, finish: bool) -> None:
        """COMMIT has answered: whatever happens from here on, this is done."""
        self.commits += 1
        self._reaction.committed(self.commits)
        if finish:
            self.finished, self.in_doubt = True, False
            self._reaction.stand_down()
