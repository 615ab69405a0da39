"""A fire time that came to nothing, run again as that one."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse

from scheduler import running
from scheduler.changes import Refused
from scheduler.context import RunContext
from scheduler.dashboard.tries import tries_of
from scheduler.minting import mint
from scheduler.models import Execution, Schedule, Tick
from scheduler.pausing import pause, resume
from scheduler.pruning import keep_days
from scheduler.runner import run
from scheduler.states import ExecutionState
from tests.integration.test_verbs import command, do, operator, text
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick, store

__all__ = ["operator"]  # a fixture

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_fire_time_that_failed_is_run_again_as_that_one(operator: Client) -> None:
    schedule = make_schedule("nightly")
    failed = make_tick(schedule, seconds_ago=3600)
    keys: list[str] = []

    def body(context: RunContext) -> None:
        keys.append(context.once_key("charge"))
        assert context.scheduled_for == failed.fire_time
        if len(keys) == 1:
            raise ValueError("disk full")

    when = failed.fire_time.isoformat()
    assert "is planned, so it is not run again" in command("run", "nightly", "--for", when)[1]
    assert run(delivery_of(failed), body).state is ExecutionState.FAILED
    status, said = command("run", "nightly", "--for", when, "--wait", "0", "--format", "json", "--key", "k")
    again = Tick.objects.get(pk=json.loads(said)["tick"])
    assert status == 75 and again.manual_key and again.fire_time == failed.fire_time
    assert (
        json.loads(command("run", "nightly", "--for", when, "--wait", "0", "--format", "json", "--key", "k")[1])[
            "tick"
        ]
        == again.pk
    )
    assert f"Tick {again.pk} of that fire time is planned" in command("run", "nightly", "--for", when)[1]
    assert run(delivery_of(again), body).state is ExecutionState.EXECUTED
    assert keys[0] == keys[1]
    assert f"Tick {again.pk} of that fire time was executed" in command("run", "nightly", "--for", when)[1]
    assert Tick.objects.count() == 2


def test_only_a_past_instant_can_be_run_again(operator: Client) -> None:
    schedule = make_schedule("nightly")
    later = database_now() + timedelta(hours=1)
    assert "has not come yet" in command("run", "nightly", "--for", later.isoformat())[1]
    for wrong in ("yesterday", "2027-01-31T02:00", "2027-02-31T02:00Z"):
        assert "is not an instant with a zone" in command("run", "nightly", "--for", wrong)[1]
    page = do(operator, "run", schedule, key=uuid4(), fire_time=f"{later:%Y-%m-%dT%H:%M:%S}")
    assert "has not come yet" in text(page) and not Tick.objects.exists()
    past = database_now().replace(microsecond=0) - timedelta(days=1)
    do(operator, "run", schedule, key=uuid4(), fire_time=f"{past:%Y-%m-%dT%H:%M:%S}")
    assert Tick.objects.get().fire_time == past


def test_what_a_beat_has_yet_to_pass_is_left_to_it() -> None:
    """It would store its own tick of that fire time, and the body would run twice for it."""
    make_schedule("nightly")
    due = database_now() - timedelta(minutes=5)
    Schedule.objects.update(next_fire_at=due)
    assert "No beat has passed" in command("run", "nightly", "--for", due.isoformat())[1]
    before = due - timedelta(minutes=5)
    assert command("run", "nightly", "--for", before.isoformat(), "--wait", "0")[0] == 75
    Schedule.objects.update(enabled=False, next_fire_at=due)
    assert command("run", "nightly", "--for", due.isoformat(), "--wait", "0")[0] == 75
    assert Tick.objects.exclude(manual_key=None).count() == 2


def test_a_fire_time_in_a_pause_is_run_although_no_beat_passes_it() -> None:
    """Nothing from before the end of the pause is caught up, so it is not run twice."""
    make_schedule("nightly", cron_expression="* * * * *")
    due = database_now().replace(second=0, microsecond=0) - timedelta(minutes=5)
    pause("nightly", why="audit", who="ada")
    store(Schedule.objects.get(), next_fire_at=due)
    assert command("run", "nightly", "--for", due.isoformat(), "--wait", "0")[0] == 75
    resume("nightly", who="ada")
    mint()
    assert Tick.objects.filter(fire_time=due).count() == 1


def test_of_a_broken_schedule_it_is_said_what_keeps_beats_from_passing() -> None:
    store(make_schedule("nightly"), next_fire_at=database_now() - timedelta(minutes=5), broken_reason="Bad zone.")
    when = (database_now() - timedelta(minutes=1)).isoformat()
    assert "it is broken: Bad zone. Repair it, and it runs or is told" in command("run", "nightly", "--for", when)[1]


def test_two_who_ask_for_a_fire_time_at_once_get_one_run() -> None:
    make_schedule("nightly")
    when = database_now() - timedelta(hours=1)

    def ask(number: int) -> bool:
        try:
            running.ask("nightly", key=f"k{number}", who=f"ops{number}", fire_time=when)
        except Refused:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(ask, range(6))) == 1
    assert Tick.objects.count() == 1


def test_what_is_deleted_after_some_days_is_not_run_again(settings: Any) -> None:
    """Its tick may have said that it was executed."""
    schedule = make_schedule("nightly")
    old = make_tick(schedule, seconds_ago=9 * 86_400, state="closed", outcome="executed")
    failed = make_tick(schedule, seconds_ago=8 * 86_400, state="closed", outcome="failed")
    make_tick(schedule, seconds_ago=60, state="closed", outcome="executed")
    Tick.objects.filter(pk=old.pk).update(closed_at=old.fire_time)
    settings.AEGIS = {"KEEP_DAYS": 7}
    keep_days()
    status, said = command("run", "nightly", "--for", old.fire_time.isoformat(), "--wait", "0")
    assert status == 2 and "It is not known whether that fire time ran: what is older than 7 days" in said
    assert command("run", "nightly", "--for", failed.fire_time.isoformat(), "--wait", "0")[0] == 75
    settings.AEGIS = {"KEEP_DAYS": "7"}  # by which beats delete nothing
    assert command("run", "nightly", "--for", old.fire_time.isoformat(), "--wait", "0")[0] == 75


def test_what_ran_again_and_is_deleted_is_not_run_once_more(settings: Any) -> None:
    """The newest tick of a recurrence is kept for ever, and what ran for its fire time after it is not."""
    schedule = make_schedule("monthly")
    failed = make_tick(schedule, seconds_ago=9 * 86_400, state="closed", outcome="failed")
    again = make_tick(schedule, seconds_ago=9 * 86_400, state="closed", outcome="executed", manual_key="again:x")
    Tick.objects.filter(pk=again.pk).update(fire_time=failed.fire_time)
    Tick.objects.update(closed_at=failed.fire_time + timedelta(days=1))
    settings.AEGIS = {"KEEP_DAYS": 7}
    keep_days()
    assert list(Tick.objects.all()) == [failed]
    status, said = command("run", "monthly", "--for", failed.fire_time.isoformat(), "--wait", "0")
    assert status == 2 and "It is not known whether that fire time ran" in said


def test_what_an_edit_has_put_before_a_beat_is_left_to_it() -> None:
    """After an edit no fire time is named until a beat passes; what came since is still to be passed."""
    schedule = make_schedule("minutely", cron_expression="* * * * *", misfire="fire_once", catch_up_window=3600)
    now = database_now()
    due = (now - timedelta(minutes=2)).replace(second=0, microsecond=0)
    Schedule.objects.filter(pk=schedule.pk).update(activated_at=now - timedelta(minutes=10), next_fire_at=None)
    assert "No beat has passed" in command("run", "minutely", "--for", due.isoformat(), "--wait", "0")[1]
    mint()
    assert not Tick.objects.exclude(manual_key=None).exists()
    before = (due - timedelta(minutes=20)).isoformat()
    assert command("run", "minutely", "--for", before, "--wait", "0")[0] == 75


def test_a_body_that_came_back_after_it_was_given_up_has_run() -> None:
    tick = make_tick(make_schedule("nightly"), seconds_ago=60)

    def body(context: RunContext) -> None:
        Execution.objects.update(state="abandoned", ended_at=database_now())
        Tick.objects.filter(pk=tick.pk).update(state="closed", outcome="abandoned", closed_at=database_now())

    run(delivery_of(tick), body)
    assert Execution.objects.get().returned_as == ExecutionState.EXECUTED
    when = tick.fire_time.isoformat()
    assert f"Tick {tick.pk} of that fire time was executed" in command("run", "nightly", "--for", when)[1]


def test_a_body_that_is_inside_under_a_closed_tick_keeps_it_from_being_run_again() -> None:
    """Without the tick guard one copy fails, and closes the tick, while another one goes on."""
    tick = make_tick(make_schedule("nightly", once_per_tick=False), seconds_ago=60)
    when = tick.fire_time.isoformat()

    def fails(context: RunContext) -> None:
        raise ValueError("disk full")

    def goes_on(context: RunContext) -> None:
        Tick.objects.filter(pk=tick.pk).update(state="closed", outcome="failed")
        assert f"Tick {tick.pk} of that fire time has a running body" in command("run", "nightly", "--for", when)[1]

    assert run(delivery_of(tick), fails).state is ExecutionState.FAILED
    assert run(delivery_of(tick), goes_on).state is ExecutionState.EXECUTED
    assert f"Tick {tick.pk} of that fire time was executed" in command("run", "nightly", "--for", when)[1]


def test_a_run_that_was_asked_for_hours_later_has_not_waited_for_hours(operator: Client) -> None:
    schedule = make_schedule("nightly")
    failed = make_tick(schedule, seconds_ago=7 * 3600, state="closed", outcome="failed")
    command("run", "nightly", "--for", failed.fire_time.isoformat(), "--wait", "0")
    run(delivery_of(Tick.objects.latest("pk")), lambda context: None)
    execution = Execution.objects.get()
    (shown,) = tries_of([execution.pk]).values()
    assert shown.fire_time == failed.fire_time and timedelta() <= shown.at - shown.due < timedelta(minutes=1)
    page = operator.get(reverse("admin:aegis_scheduler_execution_changelist")).content.decode()
    (waited,) = re.findall(r'field-waited">([\d.]+) s<', page)
    assert float(waited) < 60


def test_what_a_deleted_schedule_of_the_name_ran_is_not_run_again() -> None:
    tick = make_tick(make_schedule("nightly"), seconds_ago=60)
    assert run(delivery_of(tick), lambda context: None).state is ExecutionState.EXECUTED
    Schedule.objects.all().delete()
    make_schedule("nightly")
    status, said = command("run", "nightly", "--for", tick.fire_time.isoformat(), "--wait", "0")
    assert status == 2 and f"Tick {tick.pk} of that fire time was executed" in said


def test_a_schedule_that_was_renamed_is_not_run_again_under_other_keys() -> None:
    schedule = make_schedule("nightly")
    failed = make_tick(schedule, seconds_ago=60, state="closed", outcome="failed")
    when = failed.fire_time.isoformat()
    Schedule.objects.update(name="weekly")
    status, said = command("run", "weekly", "--for", when, "--wait", "0")
    assert status == 2 and "It was 'nightly' at that fire time" in said
    Schedule.objects.update(name="nightly")
    assert command("run", "nightly", "--for", when, "--wait", "0")[0] == 75


@pytest.mark.parametrize("when", ["0001-01-01T00:00+14:00", "9999-12-31T23:59:59-14:00", "1000-01-01T00:00Z"])
def test_an_instant_beyond_the_calendar_is_refused_in_a_sentence(when: str) -> None:
    make_schedule("nightly")
    status, said = command("run", "nightly", "--for", when, "--wait", "0")
    assert status == 2 and "is too far away; give a year from 1900" in said
