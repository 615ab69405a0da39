"""A retry that would wait for longer than anything is kept, and an end that the database refuses."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from scheduler import ExclusiveTask, RunContext, exclusive_task, ledger
from scheduler.exceptions import LedgerUnavailable
from scheduler.ledger import Started
from scheduler.models import Execution
from scheduler.states import ExecutionState
from tests.integration.test_ticker import dead_execution

pytestmark = pytest.mark.django_db(transaction=True)

FAR = {"too far": 1.7e15, "beyond the calendar": 1.7e12, "infinite": math.inf, "no number": math.nan}


@exclusive_task(lock="database", lock_name="tests.far", bind=True)
def far(self: ExclusiveTask, context: RunContext, which: str) -> None:
    raise self.retry(countdown=FAR[which])


@pytest.fixture(autouse=True)
def clean_app() -> Celery:
    from aegis_site.celery import app

    app.set_current()
    return app


@pytest.mark.parametrize("which", FAR)
def test_a_retry_after_more_than_a_century_fails_the_body(which: str, settings: Any) -> None:
    settings.AEGIS = {**settings.AEGIS, "FINISH_PATIENCE": 0.5}
    with pytest.raises(ValueError, match=f"century at the most; you gave {FAR[which]:g} seconds".replace("+", r"\+")):
        far(which)
    execution = Execution.objects.select_related("tick").get()
    assert (execution.state, execution.tick.outcome) == ("failed", "failed")


def test_what_the_database_refuses_is_not_taken_for_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = dead_execution("database")
    started = Started(id=execution.pk, state=ExecutionState.RUNNING, lease_id=execution.lease_id)

    def asked_again(seconds: float) -> None:
        pytest.fail(f"it waits for {seconds} s to send it again")

    monkeypatch.setattr(ledger, "time", SimpleNamespace(sleep=asked_again))
    with pytest.raises(LedgerUnavailable, match="DatetimeFieldOverflow"):
        ledger.end_patiently(started, ExecutionState.RETRIED, countdown=1e300)
