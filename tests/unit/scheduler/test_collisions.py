"""Collisions: proven ones are true, no true one is missed, and the counts are those of the definition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.collisions import (
    Body,
    Cause,
    count,
    duplicates,
    ledger_duplicates,
    ledger_overlaps,
    overlaps,
    shared,
)
from scheduler.intervals import Groups

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)


def t(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def body(number: int, start: float, end: float | None = None, **changes: object) -> Body:
    """An executed body that filled its stamps exactly, or a running one."""
    plain = Body(
        execution_id=number,
        tick_id=number,
        attempt=1,
        lock_name="invoices",
        lock_alias="redis",
        worker="worker@1",
        guarded=True,
        began=True,
        state="running" if end is None else "executed",
        started_at=t(start),
        ended_at=None if end is None else t(end),
        ran=None if end is None else end - start,
        heartbeat_at=t(start),
        returned_at=None,
        forced=False,
    )
    return replace(plain, **changes)


def numbers(*bodies: Body) -> tuple[int, int]:
    found = overlaps(bodies)
    return len(found.proven), len(found.possible)


class TestOverlaps:
    def test_n_at_once_are_n_less_one(self) -> None:
        found = overlaps([body(n, n, 10) for n in range(4)])
        assert [(o.execution_id, o.others) for o in found.proven] == [(1, (0,)), (2, (0, 1)), (3, (0, 1, 2))]
        assert (found.proven[0].start, found.proven[0].end) == (t(1), t(10))
        assert found.possible == ()

    def test_one_after_the_other_is_none(self) -> None:
        assert numbers(body(1, 0, 5), body(2, 5, 9), body(3, 9, 12)) == (0, 0)

    def test_other_lock_names_do_not_matter(self) -> None:
        assert numbers(body(1, 0, 5), body(2, 1, 6, lock_name="orders")) == (0, 0)

    def test_stamps_that_meet_while_bodies_may_not_have_are_possible(self) -> None:
        slow_stamps = body(1, 0, 5, ran=1.0)  # somewhere in [0, 5], certain nowhere
        found = overlaps([slow_stamps, body(2, 4, 8)])
        assert found.proven == ()
        (possible,) = found.possible
        assert (possible.execution_id, possible.others, possible.proven) == (2, (1,), False)
        assert (possible.start, possible.end) == (t(4), t(5))

    def test_certain_part_is_what_every_placement_of_the_body_fills(self) -> None:
        long_body = body(1, 0, 10, ran=8.0)  # certainly inside in [2, 8]
        assert numbers(long_body, body(2, 7.9, 20)) == (1, 0)
        assert numbers(long_body, body(2, 8, 20)) == (0, 1)

    def test_a_body_that_was_not_entered_counts_for_nothing(self) -> None:
        assert numbers(body(1, 0, 5), body(2, 1, 6, began=False, state="lost")) == (0, 0)

    def test_a_running_body_is_certain_to_its_last_heartbeat_and_open_beyond(self) -> None:
        running = body(1, 0, heartbeat_at=t(5))
        assert numbers(running, body(2, 4, 6)) == (1, 0)
        found = overlaps([running, body(2, 7)])
        assert len(found.possible) == 1
        assert found.possible[0].end is None

    def test_a_killed_worker_is_no_possible_overlap(self) -> None:
        killed = body(1, 0, state="abandoned", heartbeat_at=t(5), ended_at=t(12))
        assert numbers(killed, body(2, 8, 20)) == (0, 0)
        assert numbers(killed, body(2, 4, 20)) == (1, 0)

    def test_an_abandoned_body_that_is_heard_of_later_counts_to_that_stamp(self) -> None:
        zombie = body(1, 0, state="abandoned", heartbeat_at=t(5), ended_at=t(12), returned_at=t(15))
        (overlap,) = overlaps([zombie, body(2, 8, 20)]).proven
        assert (overlap.execution_id, overlap.others, overlap.cause) == (2, (1,), Cause.TAKEN_OVER)
        assert numbers(replace(zombie, returned_at=None, heartbeat_at=t(9)), body(2, 8, 20)) == (1, 0)
        assert numbers(zombie, body(2, 15, 20)) == (0, 0)

    def test_a_body_time_longer_than_its_stamps_proves_no_more_than_they_do(self) -> None:
        """The database's clock was set forward or slewed while the body ran."""
        assert numbers(body(1, 0, 5, ran=9.0), body(2, 5, 8), body(3, -3, 0)) == (0, 0)

    @pytest.mark.parametrize(
        ("earlier", "later", "cause"),
        [
            ({"lock_alias": "none"}, {"lock_alias": "none"}, Cause.NO_LOCK),
            ({"lock_alias": "redis"}, {"lock_alias": "database"}, Cause.TWO_STRATEGIES),
            ({"state": "lost"}, {}, Cause.LEASE_OUTLIVED),
            ({}, {"state": "lost"}, Cause.LEASE_OUTLIVED),
            ({"state": "lost", "forced": True}, {}, Cause.FORCED),
            ({}, {"forced": True}, Cause.UNKNOWN),  # its own lease was ended later, which let nobody in before
            ({"lock_alias": "none", "forced": True}, {"lock_alias": "none"}, Cause.NO_LOCK),
            ({}, {}, Cause.UNKNOWN),
        ],
    )
    def test_cause(self, earlier: dict, later: dict, cause: Cause) -> None:
        (overlap,) = overlaps([body(1, 0, 5, **earlier), body(2, 3, 8, **later)]).proven
        assert overlap.cause == cause


class TestDuplicates:
    def test_bodies_of_one_attempt_beyond_the_first(self) -> None:
        found = duplicates(
            [body(n, n, n + 1, tick_id=7, guarded=False) for n in (3, 1, 2)] + [body(4, 1, 2, tick_id=8)]
        )
        assert [(d.execution_id, d.beside, d.cause) for d in found] == [
            (2, 1, Cause.GUARD_OFF),
            (3, 1, Cause.GUARD_OFF),
        ]

    def test_an_attempt_that_ended_before_the_next_is_none(self) -> None:
        first = body(1, 0, state="abandoned", tick_id=7, heartbeat_at=t(3), ended_at=t(6))
        assert duplicates([first, body(2, 8, 9, tick_id=7, attempt=2)]) == []
        assert duplicates([replace(first, returned_at=t(7)), body(2, 8, 9, tick_id=7, attempt=2)]) == []

    def test_an_attempt_that_returns_after_the_next_started(self) -> None:
        first = body(1, 0, state="abandoned", tick_id=7, heartbeat_at=t(3), ended_at=t(6), returned_at=t(9))
        (found,) = duplicates([first, body(2, 8, 12, tick_id=7, attempt=2)])
        assert (found.execution_id, found.beside, found.cause) == (1, 2, Cause.WENT_ON)

    def test_a_body_that_was_not_entered_is_none(self) -> None:
        assert duplicates([body(1, 0, 1, tick_id=7), body(2, 2, 3, tick_id=7, began=False)]) == []


def test_shared_stretches_for_drawing() -> None:
    found = shared([body(1, 0, 10), body(2, 2, 4), body(3, 4, 6), body(4, 8), body(5, 30, 31, lock_name="x")])
    assert {n: [(s.start, s.end, s.proven) for s in stretches] for n, stretches in found.items()} == {
        1: [(t(2), t(6), True), (t(8), t(10), False)],
        2: [(t(2), t(4), True)],
        3: [(t(4), t(6), True)],
        4: [(t(8), t(10), False)],
    }


def test_ledger_counts_in_the_same_way() -> None:
    assert ledger_overlaps([("a", t(0), t(9)), ("a", t(1), t(2)), ("a", t(3), t(12)), ("a", t(10), t(11))]) == 3
    assert ledger_overlaps([("a", t(0), t(9)), ("b", t(1), t(2)), ("a", t(9), t(10)), ("a", t(5), t(5))]) == 0
    assert ledger_duplicates([(1, "settle"), (1, "settle"), (2, "settle"), (1, "settle")]) == 2


@dataclass(frozen=True)
class Truth:
    """When a body really was inside, and what the rows say about it."""

    name: str
    start: float
    end: float
    row: Body


@st.composite
def histories(draw: st.DrawFn) -> list[Truth]:
    """Bodies with random delays between body and stamp, some far longer than the body."""
    seconds = st.integers(0, 400).map(lambda n: n / 10)
    delays = st.one_of(st.just(0.0), st.integers(0, 3).map(lambda n: n / 10), seconds)
    found = []
    for number in range(draw(st.integers(0, 9))):
        start, length, name = draw(seconds), draw(seconds), draw(st.sampled_from("ab"))
        row = body(number, start - draw(delays), start + length + draw(delays), ran=length, lock_name=name)
        found.append(Truth(name, start, start + length, row))
    return found


def count_by_pairs(stays: list[tuple[str, datetime, datetime]]) -> int:
    """n less the number of groups, over all pairs: slow and plain."""
    groups = Groups()
    return sum(
        groups.join(i, j)
        for (i, a), (j, b) in combinations(enumerate(stays), 2)
        if a[0] == b[0] and max(a[1], b[1]) < min(a[2], b[2])
    )


@settings(max_examples=500)
@given(histories())
def test_proven_is_true_and_no_true_overlap_is_missed(history: list[Truth]) -> None:
    truth = {entry.row.execution_id: entry for entry in history}
    found = overlaps([entry.row for entry in history])

    for overlap in found.proven:
        for other in overlap.others:
            a, b = truth[overlap.execution_id], truth[other]
            assert max(a.start, b.start) < min(a.end, b.end)
    true_count = count_by_pairs([(e.name, t(e.start), t(e.end)) for e in history])
    assert len(found.proven) <= true_count <= len(found.proven) + len(found.possible)

    counted = count([entry.row for entry in history])
    certain, outer = ([getattr(e.row, kind) for e in history] for kind in ("certain", "outer"))
    assert counted.proven == count_by_pairs([(i.name, i.start, i.end) for i in certain])
    assert counted.proven + counted.possible == count_by_pairs([(i.name, i.start, i.end) for i in outer])
    assert ledger_overlaps([(e.name, t(e.start), t(e.end)) for e in history]) == true_count


@given(histories())
def test_shared_stretches_are_those_in_which_two_are_inside(history: list[Truth]) -> None:
    rows = [entry.row for entry in history]
    found = shared(rows)
    for row in rows:
        others = [r.certain for r in rows if r is not row and r.lock_name == row.lock_name]
        points = [row.certain.start + (row.certain.end - row.certain.start) * n / 20 for n in range(20)]
        for point in points if row.certain.start < row.certain.end else []:
            met = any(o.start <= point < o.end for o in others)
            drawn = any(s.proven and s.start <= point < s.end for s in found.get(row.execution_id, ()))
            assert met == drawn
