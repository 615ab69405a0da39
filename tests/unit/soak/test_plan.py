"""The plan of faults: the same for one seed, every kind in each round, every variant in turn."""

from __future__ import annotations

from itertools import islice

from aegis_site.soak.plan import VARIANTS, FaultKind, faults


def test_one_seed_makes_one_plan() -> None:
    assert list(islice(faults(7, list(FaultKind)), 50)) == list(islice(faults(7, list(FaultKind)), 50))
    assert list(islice(faults(7, list(FaultKind)), 50)) != list(islice(faults(8, list(FaultKind)), 50))


def test_each_round_has_every_kind_and_three_rounds_every_variant() -> None:
    rounds = len(FaultKind)
    planned = list(islice(faults(1, list(FaultKind)), 6 * rounds))
    for start in range(0, len(planned), rounds):
        assert {fault.kind for fault in planned[start : start + rounds]} == set(FaultKind)
    assert {(fault.kind, fault.variant) for fault in planned} == {(k, v) for k, vs in VARIANTS.items() for v in vs}


def test_no_kinds_are_no_faults() -> None:
    assert list(faults(1, [])) == []
