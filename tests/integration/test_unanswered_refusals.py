"""A refusal that the ledger's database does not answer: nobody is told that the tick is over, and it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from celery.exceptions import Ignore

from locks import Lease, lock_backends
from scheduler.delivery import HEADER, stamp
from scheduler.exceptions import LedgerUnavailable
from scheduler.models import Execution, Tick
from scheduler.runner import run
from scheduler.statements import refuse
from scheduler.states import ExecutionState, TickState
from tests.integration.test_attack_statements import lost_replies
from tests.integration.test_celery_in_place import asked, clean_app, held, part  # noqa: F401
from tests.integration.test_runner import nothing
from tests.support.engine import delivery_of, make_schedule, make_tick

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_app")]


def is_refusal(sql: str) -> bool:
    return sql == refuse.REFUSED


def is_block(sql: str) -> bool:
    return sql == refuse.BLOCKED


# What is refused, the statement that says so, and the alias that the message names.
REFUSALS = pytest.mark.parametrize(
    ("wanted", "alias"), [(is_refusal, "database"), (is_block, "unknown")], ids=["refused", "blocked"]
)
LOST = pytest.mark.parametrize("requests_too", [True, False], ids=["request", "answer"])


def stays_open(tick: Tick) -> bool:
    tick.refresh_from_db()
    return (tick.state, tick.outcome) == (TickState.PLANNED, "")


@REFUSALS
@LOST
def test_a_refusal_that_cannot_be_stored_is_an_error_and_leaves_the_tick_open(
    wanted: Callable[[str], bool],
    alias: str,
    requests_too: bool,
    held: Lease,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tick, entered = make_tick(make_schedule(lock_name=held.name)), list[int]()
    refused = replace(delivery_of(tick), alias=alias)
    with lost_replies(monkeypatch, wanted, requests_too=requests_too) as lost, pytest.raises(LedgerUnavailable):
        run(refused, lambda context: entered.append(1))
    assert (len(lost), entered) == (1, [])
    assert stays_open(tick)
    lock_backends["database"].release(held)
    assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED
    assert run(delivery_of(tick), nothing).state is ExecutionState.DUPLICATE


@REFUSALS
def test_celery_is_told_nothing_of_a_tick_whose_refusal_cannot_be_stored(
    wanted: Callable[[str], bool],
    alias: str,
    held: Lease,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tick = make_tick(make_schedule(task=part.name, lock_name=held.name))
    with lost_replies(monkeypatch, wanted, requests_too=True), pytest.raises(Ignore):
        asked(part, headers={HEADER: {**stamp(tick), "alias": alias}})
    assert [getattr(record, "action", "") for record in caplog.records].count("not_begun") == 1
    assert stays_open(tick) and not Execution.objects.exists()
    lock_backends["database"].release(held)
    assert asked(part, headers={HEADER: stamp(tick)}) == "part"
    with pytest.raises(Ignore):
        asked(part, headers={HEADER: stamp(tick)})
    assert Execution.objects.filter(began=True).count() == 1
