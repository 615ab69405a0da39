"""What Celery is told where the ledger could not say whether a message's tick was begun."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import Ignore

from scheduler.delivery import HEADER, stamp
from scheduler.exceptions import LedgerUnavailable
from scheduler.models import Execution, Tick
from scheduler.states import TickState
from tests.integration.test_attack_statements import is_start, lost_replies
from tests.integration.test_celery_in_place import asked, clean_app, part  # noqa: F401
from tests.support.engine import make_schedule, make_tick

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_app")]


def test_a_part_that_was_not_begun_fails_and_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reacts to the failure must not see the chain go on later."""
    with lost_replies(monkeypatch, is_start, times=2, requests_too=True), pytest.raises(LedgerUnavailable):
        asked(part, chain=[{"task": "x"}])
    tick = Tick.objects.get()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "blocked")
    with pytest.raises(Ignore):  # its message once more
        asked(part, chain=[{"task": "x"}])
    assert not Execution.objects.filter(began=True).exists()


def test_a_part_that_may_have_been_begun_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with lost_replies(monkeypatch, is_start, times=2), pytest.raises(Ignore):
        asked(part, chain=[{"task": "x"}])
    assert Tick.objects.get().state == TickState.STARTED


@pytest.mark.parametrize("canvas", [{}, {"chord": {"task": "x"}}])
def test_a_copy_whose_refusal_cannot_be_stored_says_nothing_over_the_first(
    canvas: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(part, **canvas) == "part"
    with lost_replies(monkeypatch, is_start, times=2, requests_too=True), pytest.raises(Ignore):
        asked(part, **canvas)
    assert Tick.objects.get().outcome == "executed"


def test_a_tick_of_a_schedule_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = make_tick(make_schedule(task=part.name, lock_name="place.part"))
    with lost_replies(monkeypatch, is_start, times=2, requests_too=True), pytest.raises(Ignore):
        asked(part, headers={HEADER: stamp(tick)})
    tick.refresh_from_db()
    assert tick.outcome == ""
    assert asked(part, headers={HEADER: stamp(tick)}) == "part"
