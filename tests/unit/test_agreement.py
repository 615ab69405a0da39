"""Audit and ledger are compared body by body: whatever the machine is busy with, a true story agrees with itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aegis_site.demo.agreement import Stay, agrees
from scheduler.bodies import Body
from scheduler.collisions import count, ledger_overlaps
from tests.unit.scheduler.test_collisions import body, t


def stay(number: int, entered: float, left: float, subject: str = "invoice 1") -> Stay:
    return Stay(
        execution_id=number,
        subject=subject,
        amount_cents=1,
        resource="invoices",
        entered_at=t(entered),
        left_at=t(left),
    )


# Two bodies of one tick that meet for a second, in which the second has not stamped yet; and one of another tick.
BODIES = [body(1, 0, 3, tick_id=7), body(2, 2, 6, tick_id=7), body(3, 9, 10, tick_id=8)]
STAYS = [stay(1, 0.5, 2.9), stay(2, 3.5, 5.9), stay(3, 9, 10, "invoice 2")]


def test_a_meeting_outside_of_the_ledgers_stamps_is_no_contradiction() -> None:
    proven = count(BODIES).proven
    assert (proven, ledger_overlaps((s.resource, s.entered_at, s.left_at) for s in STAYS)) == (1, 0)
    assert agrees(BODIES, STAYS)


def test_bodies_of_which_nothing_was_seen_but_their_beginning_need_no_effect() -> None:
    others = [body(4, 11, tick_id=9), body(5, 12, 13, tick_id=10, state="failed"), body(6, 14, 15, began=False)]
    assert agrees([*BODIES, *others], STAYS)
    assert agrees([*BODIES, *others], [*STAYS, stay(4, 11, 30, "invoice 3")]), "who has left may not have ended"


@pytest.mark.parametrize(
    ("why", "bodies", "stays"),
    [
        ("a body without an effect", BODIES, STAYS[:2]),
        ("an effect without a body", BODIES, [*STAYS, stay(9, 20, 21, "invoice 3")]),
        (
            "an effect of a refused body",
            [*BODIES, body(9, 20, 21, began=False)],
            [*STAYS, stay(9, 20, 21, "c")],
        ),
        ("an effect that names no execution", BODIES, [*STAYS, replace(STAYS[0], execution_id=None)]),
        ("two effects of one body", BODIES, [*STAYS, STAYS[2]]),
        ("an effect before its body", BODIES, [*STAYS[:2], stay(3, 8.9, 9.5, "invoice 2")]),
        ("an effect after its body", BODIES, [*STAYS[:2], stay(3, 9.5, 10.1, "invoice 2")]),
        ("one tick with two subjects", BODIES, [STAYS[0], stay(2, 3.5, 5.9, "invoice 3"), STAYS[2]]),
        ("one subject in two ticks", BODIES, [*STAYS[:2], stay(3, 9, 10)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_contradiction_is_one(why: str, bodies: list[Body], stays: list[Stay]) -> None:
    assert not agrees(bodies, stays)
