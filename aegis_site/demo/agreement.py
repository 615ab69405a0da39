"""Whether the audit and the side-effect ledger tell one story. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from scheduler.bodies import Body
from scheduler.states import ExecutionState

__all__ = ["Stay", "agrees"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One effect: the execution it says it belongs to, what it did to what, and its own stamps."""

    execution_id: int | None
    subject: str
    amount_cents: int
    resource: str
    entered_at: datetime
    left_at: datetime


def agrees(bodies: Iterable[Body], stays: Iterable[Stay]) -> bool:
    """Whether each body that executed left one effect, every effect lies inside what the audit knows of its body,
    and executions of one tick are those of one subject.

    Compared body by body, for the numbers of overlaps need not be equal: the stamps of the ledger lie inside the
    body, and two bodies that meet before the one has stamped or after the other has are no overlap of the ledger.
    On a busy machine that is not rare. Those of the ledger are never more than the proven and the possible ones.
    """
    known = {body.execution_id: body for body in bodies if body.began}
    left = list(stays)
    found = [(body, stay) for stay in left if (body := known.get(stay.execution_id or 0))]
    told = {body.execution_id for body, _ in found}
    executed = {body.execution_id for body in known.values() if body.state == ExecutionState.EXECUTED}
    pairs = {(body.tick_id, stay.subject) for body, stay in found}
    return (
        len(told) == len(found) == len(left)
        and executed <= told
        and len(pairs) == len({tick for tick, _ in pairs}) == len({subject for _, subject in pairs})
        and all(b.outer.start <= stay.entered_at and stay.left_at <= b.outer.end for b, stay in found)
    )
