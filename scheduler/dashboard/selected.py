"""The try that was selected on a timeline: what happened to it, with whom, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from scheduler.charts.looks import outcome, refusal
from scheduler.charts.scale import duration_words
from scheduler.collisions import Cause, Duplicate, Overlap, Overlaps
from scheduler.dashboard.facts import TryRow
from scheduler.states import ExecutionState

MOST_PARTIES = 12

_CAUSES = {
    Cause.NO_LOCK: "this strategy excludes nothing, so whoever hears of a tick runs it",
    Cause.TWO_STRATEGIES: "each strategy sees only its own leases",
    Cause.FORCED: "somebody ended it while its body was inside, and the next one was let in",
    Cause.LEASE_OUTLIVED: "the body ran on after its lease was over, and the next one was let in",
    Cause.TAKEN_OVER: "its worker fell silent, its lease ran out, and the next one was let in",
    Cause.GUARD_OFF: "without the tick guard each delivery of a tick may run in turn",
    Cause.WENT_ON: "it was given up for dead and had gone on",
    Cause.UNKNOWN: "the rows do not tell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """``sentences`` say what happened, ``tries`` who took part, the selected one first."""

    title: str
    sentences: tuple[str, ...]
    tries: tuple[Party, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One try, in words."""

    row: TryRow
    outcome: str
    ran: str


def company(number: int, met: Overlaps, repeated: Sequence[Duplicate], holder: int | None) -> list[int]:
    """Whose rows are needed to tell what happened to an execution; itself first."""
    others = [n for o in _overlaps_of(number, met) for n in (o.execution_id, *o.others)]
    others += [n for d in _duplicates_of(number, repeated) for n in (d.execution_id, d.beside)]
    return list(dict.fromkeys([number, *others, *([holder] if holder else [])]))[:MOST_PARTIES]


def selected(
    number: int, rows: Mapping[int, TryRow], met: Overlaps, repeated: Sequence[Duplicate]
) -> Selected | None:
    """None where there is no such execution."""
    row = rows.get(number)
    if row is None:
        return None
    overlaps, doubles = _overlaps_of(number, met), _duplicates_of(number, repeated)
    too_many = {duplicate.execution_id for duplicate in repeated}
    sentences = [_overlap(overlap, rows) for overlap in overlaps]
    sentences += [_duplicate(duplicate, number, rows) for duplicate in doubles]
    if row.reason:
        sentences.append(f"{row.reason[0].upper()}{row.reason[1:]}.")
    if not sentences:
        sentences.append("Nobody else was inside, and its tick ran no other body.")
    word = "Overlap" if overlaps else "Duplicate" if doubles else _word(row)
    return Selected(
        title=f"{word}: {row.label}, tick of {_clock(row.fire_time)}",
        sentences=tuple(sentences),
        tries=tuple(
            Party(
                row=party,
                outcome=ExecutionState(party.state).label + (", duplicate" if party.id in too_many else ""),
                ran="" if party.ran is None else duration_words(party.ran),
            )
            for party in rows.values()
        ),
    )


def _overlaps_of(number: int, met: Overlaps) -> list[Overlap]:
    """The overlaps that it began, else those that others began while it was inside."""
    found = [*met.proven, *met.possible]
    begun = [overlap for overlap in found if overlap.execution_id == number]
    return begun or [overlap for overlap in found if number in overlap.others][:MOST_PARTIES]


def _duplicates_of(number: int, repeated: Sequence[Duplicate]) -> list[Duplicate]:
    begun = [duplicate for duplicate in repeated if duplicate.execution_id == number]
    return begun or [duplicate for duplicate in repeated if duplicate.beside == number][:MOST_PARTIES]


def _overlap(overlap: Overlap, rows: Mapping[int, TryRow]) -> str:
    until = "on" if overlap.end is None else f"to {_clock(overlap.end)}"
    certainty = "proven" if overlap.proven else "possible"
    return (
        f"Overlap, {certainty}: {_name(overlap.execution_id, rows)} was inside together with "
        f"{_names(overlap.others, rows)} from {_clock(overlap.start)} {until}. "
        f"Cause: {overlap.cause.value}; {_CAUSES[overlap.cause]}."
    )


def _duplicate(duplicate: Duplicate, number: int, rows: Mapping[int, TryRow]) -> str:
    return (
        f"Duplicate: {_name(duplicate.execution_id, rows)} ran the tick of "
        f"{_name(duplicate.beside, rows)}, attempt {duplicate.attempt}. "
        f"Cause: {duplicate.cause.value}; {_CAUSES[duplicate.cause]}."
    )


def _names(numbers: Collection[int], rows: Mapping[int, TryRow]) -> str:
    *first, final = (_name(number, rows) for number in numbers)
    return f"{', '.join(first)} and {final}" if first else final


def _name(number: int, rows: Mapping[int, TryRow]) -> str:
    return rows[number].who if number in rows else f"execution {number}"


def _word(row: TryRow) -> str:
    return refusal(row.state).label if row.started_at is None else outcome(row.state).label


def _clock(instant: datetime) -> str:
    local = timezone.localtime(instant)
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"
