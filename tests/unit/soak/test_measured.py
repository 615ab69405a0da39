"""What a run says of each fault: whom it could reach and hit, what it explains alone; and the documents agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aegis_site.soak.measured import cells
from aegis_site.soak.plan import FaultKind
from aegis_site.soak.promises import OVERLAP_NOT_COVERED, TOUCHED_BY_POSTGRES
from aegis_site.soak.verdicts import findings
from scheduler.failures import FAILURES, PROMISED
from tests.unit.soak.test_verdicts import PID, changed, fault, healthy


def test_a_fault_of_a_process_is_counted_with_the_bodies_that_it_touched() -> None:
    history = replace(healthy(), faults=[fault(FaultKind.PAUSE, 2.2, 2.3, pids=frozenset({PID}))])
    (cell,) = cells(history, findings(history))
    assert (cell["fault"], cell["strategy"], cell["injected"], cell["bodies_hit"]) == ("pause", "database", 1, 1)
    assert (cell["overlaps"], cell["alone"], cell["broken_promises"]) == (0, 0, 0)


def test_a_fault_of_another_strategys_store_is_not_counted() -> None:
    elsewhere = fault(FaultKind.REDIS_RESTART, 2.2, 2.3, aliases=frozenset({"redis"}))
    history = replace(healthy(), faults=[elsewhere])
    assert cells(history, findings(history)) == []


@pytest.mark.parametrize(("more", "alone"), [((), 1), ((FaultKind.PARTITION,), 0)])
def test_an_overlap_counts_under_each_fault_and_alone_only_where_there_is_one(
    more: tuple[FaultKind, ...], alone: int
) -> None:
    base = healthy()
    stays = changed(base.stays, 1, ended=3.3)
    made = [fault(kind, 2.2, 2.3, pids=frozenset({PID})) for kind in (FaultKind.PAUSE, *more)]
    history = replace(base, stays=stays, faults=made)
    found = cells(history, findings(history))
    assert {str(cell["fault"]): (cell["overlaps"], cell["alone"]) for cell in found} == {
        str(kind): (1, alone) for kind in (FaultKind.PAUSE, *more)
    }


def touched(kind: FaultKind, alias: str) -> bool:
    """Whether a soak's fault of this kind reaches a strategy's store at all."""
    stores = {FaultKind.PG_RESTART: TOUCHED_BY_POSTGRES, FaultKind.REDIS_RESTART: {"redis", "redlock"}}
    return alias in stores.get(kind, {alias})


@pytest.mark.parametrize("failure", [failure for failure in FAILURES if failure.fault], ids=lambda row: row.key)
def test_what_is_documented_is_what_a_soak_holds_a_strategy_to(failure: object) -> None:
    kind = FaultKind(failure.fault)  # type: ignore[attr-defined]
    promised = {alias: cell.answer in PROMISED for alias, cell in failure.cells.items()}  # type: ignore[attr-defined]
    held = {alias: kind not in kinds for alias, kinds in OVERLAP_NOT_COVERED.items()}
    checked = [alias for alias in held if alias != "none" and touched(kind, alias)]
    assert {alias: promised[alias] for alias in checked} == {alias: held[alias] for alias in checked}
