"""From tries and collisions to the marks of a timeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from scheduler.charts import Meeting, Refusal, Span
from scheduler.collisions import Body, Duplicate, Overlap, Overlaps, shared
from scheduler.dashboard.facts import TryRow
from scheduler.states import ExecutionState

# An execution -> the page on which it is selected.
Select = Callable[[int], str]


def spans(
    tries: Sequence[TryRow], bodies: Collection[Body], repeated: Collection[Duplicate], select: Select
) -> list[Span]:
    """A bar for each try that started, with the stretches in which another was inside.

    None of the bodies of a tick that ran more than once "ran once".
    """
    met = shared(bodies)
    again = {number for duplicate in repeated for number in (duplicate.execution_id, duplicate.beside)}
    return [
        Span(
            worker=row.worker,
            start=row.at,
            end=row.until,
            state="duplicate" if row.id in again and row.state == ExecutionState.EXECUTED else row.state,
            label=row.label,
            url=select(row.id),
            detail=_guard_words(row),
            due=row.due,
            overlap=tuple((s.start, s.end, s.proven) for s in met.get(row.id, ())),
        )
        for row in tries
        if row.started_at is not None
    ]


def _guard_words(row: TryRow) -> str:
    parts = [row.strategy, "" if row.token is None else f"token {row.token}", row.reason]
    return ", ".join(part for part in parts if part)


def refusals(tries: Sequence[TryRow], select: Select) -> list[Refusal]:
    """A small sign for each try that was refused before the body."""
    by_id = {row.id: row for row in tries}
    return [
        Refusal(
            worker=row.worker,
            at=row.at,
            kind=row.state,
            label=row.label,
            url=select(row.id),
            detail=_refusal_words(row, by_id),
        )
        for row in tries
        if row.started_at is None
    ]


def _refusal_words(row: TryRow, by_id: Mapping[int, TryRow]) -> str:
    holder = by_id.get(row.holder_id or 0)
    return f"{row.reason}: {holder.who}" if holder else row.reason


def meetings(met: Overlaps, bodies: Collection[Body], tries: Mapping[int, TryRow], select: Select) -> list[Meeting]:
    """A mark for each body too many, of those whose newcomer or whose company is among the tries."""
    workers = {body.execution_id: body.worker for body in bodies}
    found = [*met.proven, *met.possible]
    return [_meeting(overlap, workers, tries, select) for overlap in found if _concerns(overlap, tries)]


def _concerns(overlap: Overlap, tries: Mapping[int, TryRow]) -> bool:
    return any(number in tries for number in (overlap.execution_id, *overlap.others))


def _meeting(overlap: Overlap, workers: Mapping[int, str], tries: Mapping[int, TryRow], select: Select) -> Meeting:
    newcomer = tries.get(overlap.execution_id)
    inside = (*overlap.others, overlap.execution_id)
    return Meeting(
        start=overlap.start,
        end=overlap.end,
        certain=overlap.proven,
        label=newcomer.label if newcomer else overlap.lock_name,
        parties=tuple(tries[n].who if n in tries else workers[n] for n in inside),
        detail=f"cause: {overlap.cause.value}",
        url=select(overlap.execution_id),
    )
