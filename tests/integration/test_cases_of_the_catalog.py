"""Reports from elsewhere, tried on the catalog, its forms and what fires. All of them: ``tests/cases.md``."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from scheduler import exclusive_task
from scheduler.context import RunContext
from scheduler.minting import mint
from scheduler.models import Execution, LockName, Schedule, ScheduleChange, Tick
from scheduler.pausing import switch
from scheduler.runner import run
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.integration.test_admin import ADD, CHANGE, boss, filled, problems  # noqa: F401
from tests.integration.test_runner import nothing
from tests.integration.test_schedule_form import as_shown
from tests.integration.test_ticker import QUEUE, due_schedule, empty_queue  # noqa: F401
from tests.integration.test_verbs import do
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


def fired() -> Any:
    return Tick.objects.exclude(state=TickState.MISFIRED)


def activated(schedule: Schedule, **ago: float) -> None:
    """Past the trigger: as if it had been activated so long ago, and not looked at since."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET activated_at = %s, next_fire_at = NULL WHERE id = %s",
            [database_now() - timedelta(**ago), schedule.pk],
        )


# What fires, and how often


def test_saves_around_a_due_time_make_one_tick_of_it() -> None:
    """Of another row, and of the row itself where nothing of when it fires is changed."""
    due = database_now().replace(second=0, microsecond=0)
    daily = make_schedule("daily", cron_expression=f"{due.minute} {due.hour} * * *", queue=QUEUE, misfire_grace=600)
    other = make_schedule("other", every_seconds=3600, queue=QUEUE)
    activated(daily, hours=2)
    for number in range(6):
        other.notes = f"note {number}"
        other.save()
        fresh = Schedule.objects.get(pk=daily.pk)
        fresh.notes = f"note {number}"
        fresh.save()
        Ticker().tick()
    assert list(fired().values_list("schedule_name", "fire_time")) == [("daily", due)]


def test_one_instant_runs_once_however_often_its_beat_starts_again() -> None:
    schedule = make_schedule("once", once_at=database_now(), queue=QUEUE)
    activated(schedule, hours=1)
    mint()  # and the beat is killed
    schedule.refresh_from_db()
    assert schedule.exhausted and schedule.next_fire_at is None
    for _ in range(3):
        Tick.objects.filter(state=TickState.PLANNED).update(dispatch_at=database_now())
        Ticker().tick()
        for tick in Tick.objects.all():
            run(delivery_of(tick), nothing)
    assert Tick.objects.count() == 1
    assert Execution.objects.filter(began=True).count() == 1


def test_an_interval_goes_on_where_it_was_when_beats_come_and_go() -> None:
    """Every ten minutes, and a new beat every four for half an hour: no countdown starts anew."""
    begin = database_now().replace(second=0, microsecond=0) - timedelta(hours=1)
    schedule = make_schedule("ten-minutes", every_seconds=600, queue=QUEUE, misfire_grace=60)
    activated(schedule, seconds=(database_now() - begin).total_seconds())
    for minutes in range(4, 33, 4):
        mint(now=begin + timedelta(minutes=minutes))
    times = list(fired().order_by("fire_time").values_list("fire_time", flat=True))
    assert len(times) in (3, 4)
    assert all(b - a == timedelta(minutes=10) for a, b in pairwise(times))
    assert all(time.minute % 10 == 0 for time in times)


@pytest.mark.parametrize("hours", [2, 12])
def test_an_edit_of_the_time_runs_nothing_at_the_save(hours: int) -> None:
    now = database_now()
    past, later = now - timedelta(hours=1), (now + timedelta(hours=hours)).replace(second=0, microsecond=0)
    schedule = make_schedule("daily", cron_expression=f"{past.minute} {past.hour} * * *", queue=QUEUE)
    Ticker().tick()
    Schedule.objects.filter(pk=schedule.pk).update(cron_expression=f"{later.minute} {later.hour} * * *")
    Ticker().tick()
    schedule.refresh_from_db()
    assert schedule.next_fire_at == later
    assert not Tick.objects.exists()


def test_a_row_with_a_start_in_the_near_past_waits_for_its_own_time() -> None:
    now = database_now()
    at = (now + timedelta(hours=1)).replace(second=0, microsecond=0)
    make_schedule(
        "daily", cron_expression=f"{at.minute} {at.hour} * * *", start_at=now - timedelta(minutes=2), queue=QUEUE
    )
    Ticker().tick()
    assert Schedule.objects.get().next_fire_at == at
    assert not Tick.objects.exists()


@pytest.mark.parametrize("way", ["form", "action", "save", "update", "sql", "switch"])
def test_every_way_to_switch_off_and_on_does_the_same_and_keeps_the_history(
    way: str,
    boss: Client,  # noqa: F811
) -> None:
    schedule = due_schedule(activated=3)
    Ticker().tick()
    before = Tick.objects.count()

    def turn(enabled: bool) -> None:
        if way == "form":
            edit = reverse(CHANGE, args=[schedule.pk])
            shown = {name: value for name, value in as_shown(boss, edit).items() if name != "enabled"}
            assert boss.post(edit, {**shown, **({"enabled": "on"} if enabled else {})}).status_code == 302
        elif way == "action":
            assert do(boss, "enable" if enabled else "disable", schedule).status_code == 200
        elif way == "save":
            fresh = Schedule.objects.get()
            fresh.enabled = enabled
            fresh.save()
        elif way == "update":
            Schedule.objects.update(enabled=enabled)
        elif way == "sql":
            with connection.cursor() as cursor:
                cursor.execute("UPDATE aegis_scheduler_schedule SET enabled = %s", [enabled])
        else:
            switch(schedule.name, enabled=enabled, who="ops")

    turn(False)
    off = Schedule.objects.get()
    turn(True)
    on = Schedule.objects.get()
    assert (off.next_fire_at, on.next_fire_at) == (None, None)
    assert on.revision == off.revision + 1 == schedule.revision + 2
    assert on.activated_at is not None and off.activated_at is not None and on.activated_at > off.activated_at
    mint()
    assert not fired().filter(fire_time__lte=on.activated_at).exclude(revision=schedule.revision).exists()
    assert Tick.objects.filter(revision=schedule.revision).count() >= before


@pytest.mark.parametrize(("grace", "ran"), [(60.0, True), (1.0, False)])
def test_a_tick_is_run_within_its_grace_and_not_after_it(grace: float, ran: bool) -> None:
    tick = make_tick(make_schedule(misfire_grace=grace, queue=QUEUE))
    wait_until(lambda: ran or database_now() > tick.deadline, message="the grace is over")
    Ticker().tend()
    outcome = run(delivery_of(tick), nothing)
    tick.refresh_from_db()
    assert (outcome.state is ExecutionState.EXECUTED) == ran
    assert tick.outcome == ("executed" if ran else "misfired")
    assert ran or tick.reason == "no worker took it before the deadline"


# What is stored


@pytest.mark.parametrize("wrong", [{"every_seconds": 60}, {"once_at": None}])
def test_a_row_with_none_or_two_recurrences_is_refused_in_bulk_too(wrong: dict[str, Any]) -> None:
    lock = LockName.objects.create(name="bulk", alias_wanted="database", alias_in_force="database")
    row = {"name": "bulk", "task": "t", "lock": lock, "once_at": database_now(), **wrong}
    with pytest.raises(IntegrityError, match="aegis_schedule_one_recurrence"), transaction.atomic():
        Schedule.objects.bulk_create([Schedule(**row)])


KINDS = {
    "cron": {"cron_expression": "30 2 * * *"},
    "every": {"cron_expression": "", "every_seconds": "90"},
    "once": {"cron_expression": "", "once_at": "2099-01-31T06:00:00"},
}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("then", KINDS)
def test_each_recurrence_saves_alone_and_changes_into_each_other_in_one_save(
    boss: Client,  # noqa: F811
    first: str,
    then: str,
) -> None:
    response = boss.post(reverse(ADD), filled(**KINDS[first]))
    assert response.status_code == 302, problems(response)
    schedule = Schedule.objects.get()
    changed = boss.post(reverse(CHANGE, args=[schedule.pk]), filled(**KINDS[then], lock_name=schedule.lock_id))
    assert changed.status_code == 302, problems(changed)
    schedule.refresh_from_db()
    assert bool(schedule.cron_expression) == (then == "cron")
    assert (schedule.every_seconds is not None, schedule.once_at is not None) == (then == "every", then == "once")


def test_three_recurrences_are_offered_and_none_of_the_sun() -> None:
    fields = {field.name for field in Schedule._meta.get_fields()}
    assert {"cron_expression", "every_seconds", "once_at"} <= fields
    assert not [field for field in fields if "solar" in field]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("kwargs", "{'a': 1}"),
        ("kwargs", "[1]"),
        ("args", "{}"),
        ("args", "[None]"),
        ("args", "[NaN]"),
        ("args", '["\\u0000"]'),
    ],
)
def test_arguments_that_are_no_json_are_refused_at_the_save(boss: Client, field: str, text: str) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(**{field: text}))
    assert response.status_code == 200
    assert field in problems(response)
    assert not Schedule.objects.exists()


MEGABYTE = "x" * 1_000_000


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("[\n  1, b]", "This is no JSON from line 2, column 6 on: Expecting value. You gave [\n  1, b]"),
        (f'["{MEGABYTE}", b]', 'This is no JSON from line 1, column 1000006 on: Expecting value. You gave ["xx'),
    ],
    ids=["short", "megabyte"],
)
def test_where_arguments_stop_to_be_json_is_said_in_short(boss: Client, args: str, said: str) -> None:  # noqa: F811
    told = problems(boss.post(reverse(ADD), filled(args=args)))["args"]
    assert said in told and len(told) < 250


def test_a_megabyte_of_arguments_is_stored_as_it_was_given(boss: Client) -> None:  # noqa: F811
    boss.post(reverse(ADD), filled(kwargs=f'{{"seconds": "{MEGABYTE}"}}'))
    assert Schedule.objects.get().kwargs == {"seconds": MEGABYTE}


@pytest.mark.parametrize(("length", "taken"), [(199, True), (200, True), (201, False), (500, False)])
def test_a_name_is_taken_up_to_its_length_and_then_runs(boss: Client, length: int, taken: bool) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(name="n" * length))
    assert (response.status_code == 302) == taken
    if not taken:
        assert "200" in problems(response)["name"]
        return
    schedule = Schedule.objects.get()
    assert run(delivery_of(make_tick(schedule)), nothing).state is ExecutionState.EXECUTED


@pytest.mark.parametrize("length", [180, 200])
def test_a_long_task_path_is_its_lock_name_until_it_is_too_long_for_one(length: int) -> None:
    def named(path: str) -> Any:
        @exclusive_task(lock="database", name=path)
        def nightly(context: RunContext) -> str:
            return context.lock_name

        return nightly

    path = f"Shop.{'reports.' * 30}"[:length]
    assert named(path)() == path.lower()
    assert Execution.objects.get().state == ExecutionState.EXECUTED
    with pytest.raises(ValueError, match=r"needs a lock_name of its own.*1 to 200 of the characters"):
        named(f"{path}{'x' * 201}")()


NAMES = ["zażółć gęślą jaźń", "每晚报告", "report 💶", "تقرير ليلي", "\"quoted\" 'name'", "<script>alert(1)</script>"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_alphabet_are_stored_run_and_shown_as_text(boss: Client, name: str) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(name=name, lock_name="lock.of.any"))
    assert response.status_code == 302, problems(response)
    tick = make_tick(Schedule.objects.get())
    assert run(delivery_of(tick), lambda context: context.schedule).returned.value == name  # type: ignore[union-attr]
    page = boss.get(reverse("admin:aegis_scheduler_schedule_changelist")).content.decode()
    assert "<script>alert" not in page


def test_a_name_with_a_nul_is_refused(boss: Client) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(name="nightly\x00report"))
    assert response.status_code == 200 and "name" in problems(response)


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u2029"])
def test_a_name_is_one_line(boss: Client, character: str) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(name=f"nightly{character}report"))
    assert response.status_code == 200 and "one line of text" in str(problems(response)["name"])
    schedule = make_schedule("nightly")
    with pytest.raises(IntegrityError, match="aegis_schedule_name_is_one_line"), transaction.atomic():
        Schedule.objects.filter(pk=schedule.pk).update(name=f"nightly{character}report")


def test_a_deletion_in_the_list_leaves_a_row_for_each_schedule(boss: Client) -> None:  # noqa: F811
    made = [make_schedule(f"s{number}", every_seconds=60) for number in range(3)]
    chosen = {"action": "delete_selected", "_selected_action": [one.pk for one in made], "post": "yes"}
    boss.post(reverse("admin:aegis_scheduler_schedule_changelist"), chosen)
    assert not Schedule.objects.exists()
    rows = ScheduleChange.objects.order_by("schedule_name").values_list("schedule_name", "changed_by__username")
    assert list(rows) == [("s0", "boss"), ("s1", "boss"), ("s2", "boss")]


def test_tasks_of_one_function_name_have_lock_names_of_their_own() -> None:
    def named(module: str) -> Any:
        @exclusive_task(lock="database", name=f"{module}.tasks.cleanup")
        def cleanup(context: RunContext) -> str:
            return module

        return cleanup

    billing, shop = named("billing"), named("shop")
    assert (billing(), shop()) == ("billing", "shop")
    assert set(Execution.objects.values_list("lock_name", flat=True)) == {
        "billing.tasks.cleanup",
        "shop.tasks.cleanup",
    }
