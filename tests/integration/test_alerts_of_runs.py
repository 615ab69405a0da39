"""Alerts about runs: a schedule whose runs do not end well, and a body that stays inside far too long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduler.models import AlertRule, Execution, Schedule, Tick
from tests.browser import seed
from tests.integration.test_alerts import a_beat, looked, over
from tests.support.engine import database_now, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


def _ended(schedule: Schedule, ago: float, outcome: str, **fields: Any) -> Any:
    return over(schedule, ago, outcome=outcome, **fields)


def test_a_schedule_that_fails_is_told_until_a_run_ends_well() -> None:
    a_beat()
    nightly = make_schedule("nightly", cron_expression="0 2 * * *")
    _ended(nightly, 4 * 86_400, "failed")
    _ended(nightly, 3 * 86_400, "executed")
    _ended(nightly, 2 * 86_400, "abandoned")
    over(
        nightly, 86_400, outcome="prevented", reason="held by another"
    )  # a refusal is no run: it neither counts nor mends anything
    _ended(nightly, 3_600, "failed")
    alert = looked()["failing"]
    assert alert.subject == "nightly" and alert.count == 2
    assert alert.message == "Its latest 2 runs ended as abandoned, failed."
    assert looked()["failing"].count == 2
    _ended(nightly, 60, "executed")
    assert "failing" not in looked()


def test_a_run_by_hand_of_the_fire_time_that_failed_mends_it_and_one_of_an_older_does_not() -> None:
    a_beat()
    nightly = make_schedule("nightly", cron_expression="0 2 * * *")
    _ended(nightly, 90_000, "failed")
    last = _ended(nightly, 3_600, "failed")
    _ended(nightly, 90_000, "executed", manual_key="run:older")
    assert looked()["failing"].count == 2
    again = _ended(nightly, 0, "executed", manual_key="run:again")
    Tick.objects.filter(pk=again.pk).update(fire_time=last.fire_time)
    assert "failing" not in looked()


def test_a_threshold_lets_single_failures_pass_and_a_disabled_schedule_is_nobodys_worry() -> None:
    a_beat()
    AlertRule.objects.create(key="failing", threshold=3)
    often = make_schedule("often", every_seconds=60)
    for number in range(2):
        _ended(often, 60 * (number + 1), "failed")
    assert "failing" not in looked()
    _ended(often, 10, "lost")
    assert looked()["failing"].message == "Its latest 3 runs ended as failed, lost."
    Schedule.objects.filter(pk=often.pk).update(enabled=False)
    assert "failing" not in looked()


def test_a_body_that_stays_inside_far_longer_than_usual_is_told_while_it_does() -> None:
    a_beat()
    report = make_schedule("report")
    for number in range(5):
        seed.ran(over(report, 900 + number), "worker@1", 0.1, 40.0)
    inside = seed.ran(make_tick(report, seconds_ago=50, state="started"), "worker@1", 0.1, None)
    assert "long" not in looked()
    for ago, told in ((90, False), (130, True)):
        Execution.objects.filter(pk=inside.pk).update(started_at=database_now() - timedelta(seconds=ago))
        assert ("long" in looked()) is told
    alert = looked()["long"]
    assert (alert.subject, alert.execution_id) == ("report", inside.pk)
    assert alert.message.endswith("19 of 20 of its runs end within 40 s.")
    Execution.objects.filter(pk=inside.pk).update(state="executed", ended_at=database_now())
    assert "long" not in looked()


def test_of_a_schedule_whose_usual_is_not_known_no_body_is_inside_too_long() -> None:
    a_beat()
    inside = seed.ran(make_tick(make_schedule("new"), seconds_ago=5000, state="started"), "worker@1", 0.1, None)
    assert inside.state == "running"
    assert "long" not in looked()
