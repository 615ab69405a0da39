"""The sample of the README, word for word: it is complete, makes a schedule, and its task does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.conf import settings as configured
from django.contrib.sessions.models import Session
from django.test import override_settings

from scheduler.models import Schedule
from scheduler.runner import run
from scheduler.states import ExecutionState
from tests.support.engine import database_now, delivery_of, make_tick
from tests.support.processes import PROJECT

pytestmark = pytest.mark.django_db(transaction=True)

SAMPLE = re.compile(r"^## In your project$.*?^```python\n(.*?)^```", re.M | re.S)
DEFAULT = {"default": {"BACKEND": "locks.backends.database.DatabaseLeaseBackend"}}


@pytest.fixture
def sample() -> Iterator[dict[str, Any]]:
    """What the module of the sample has, as ``shop.tasks``; its task is forgotten afterwards."""
    found = SAMPLE.search((PROJECT / "README.md").read_text())
    assert found is not None
    module: dict[str, Any] = {"__name__": "shop.tasks"}
    exec(compile(found[1], "README.md", "exec"), module)
    with override_settings(LOCKS={**configured.LOCKS, **DEFAULT}):
        yield module
    current_app.tasks.pop("shop.tasks.clear_sessions", None)


def test_the_sample_makes_a_schedule_whose_run_clears_what_is_over(sample: dict[str, Any]) -> None:
    for _ in range(2):
        sample["install"]()
    schedule = Schedule.objects.get()
    told = (schedule.name, schedule.task, schedule.lock_id, schedule.cron_expression)
    assert told == ("clear-sessions", "shop.tasks.clear_sessions", "sessions", "0 2 * * *")
    now = database_now()
    for name, days in (("over", -1), ("open", 1)):
        Session.objects.create(session_key=name, session_data="x", expire_date=now + timedelta(days=days))
    assert run(delivery_of(make_tick(schedule)), body_of(sample)).state is ExecutionState.EXECUTED
    assert [one.session_key for one in Session.objects.all()] == ["open"]


def body_of(sample: dict[str, Any]) -> Any:
    return sample["clear_sessions"].run
