"""The schedule form and the pages of facts in Django admin."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scheduler.admin.listing import word_of
from scheduler.models import LockName, Schedule, ScheduleChange
from tests.support.engine import database_now, make_schedule, make_tick, store
from tests.support.tasks import limited

pytestmark = pytest.mark.django_db(transaction=True)

ADD = "admin:aegis_scheduler_schedule_add"
CHANGE = "admin:aegis_scheduler_schedule_change"
PREVIEW = "admin:aegis_scheduler_schedule_preview"


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("boss"))
    return client


def filled(**changes: Any) -> dict[str, Any]:
    return {
        "name": "Nightly report",
        "task": "aegis_site.demo.tasks.send_digest",
        "args": "[]",
        "kwargs": "{}",
        "cron_expression": "30 2 * * *",
        "time_zone": "Europe/Berlin",
        "anchor": "1970-01-01T00:00:00",
        "strategy": "database",
        "once_per_tick": "on",
        "delivery": "one_worker",
        "overlap": "skip",
        "jitter_seconds": "0",
        "misfire": "fire_once",
        "misfire_grace": "60",
        "catch_up_window": "3600",
        "max_attempts": "1",
        "enabled": "on",
        **changes,
    }


def problems(response: Any) -> dict[str, str]:
    form = response.context["adminform"].form
    return {field: " ".join(errors) for field, errors in form.errors.items()}


def test_a_schedule_is_added_with_its_lock_name_and_a_change_row(boss: Client) -> None:
    response = boss.post(reverse(ADD), filled(reason="ticket 12"))
    assert response.status_code == 302, problems(response)
    schedule = Schedule.objects.get()
    assert schedule.lock.name == "nightly-report"
    assert schedule.lock.alias_wanted == "database"
    change = ScheduleChange.objects.get()
    assert (change.changed_by.username, change.reason) == ("boss", "ticket 12")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"cron_expression": "61 2 * * *"}, "cron_expression", "61"),
        ({"cron_expression": "0 0 31 2 *"}, "cron_expression", "never fires"),
        ({"cron_expression": ""}, "cron_expression", "exactly one"),
        ({"every_seconds": "60"}, "cron_expression", "exactly one"),
        ({"cron_expression": "", "every_seconds": "0"}, "every_seconds", "1"),
        ({"time_zone": "Europe/Berlim"}, "time_zone", "Europe/Berlin"),
        ({"args": "{}"}, "args", "JSON list"),
        ({"args": "[1"}, "args", "JSON"),
        ({"kwargs": "[]"}, "kwargs", "JSON object"),
        ({"kwargs": '{"colour": 1}'}, "kwargs", "colour"),
        ({"args": "[" * 3000 + "]" * 3000}, "args", "nested more than 100 deep; nest them less. You gave [[["),
        ({"args": "[" * 900 + "]" * 900}, "args", "nested more than 100 deep"),
        (
            {"kwargs": '{"region": ' + "9" * 5000 + "}"},
            "kwargs",
            'too many digits; write it as a text. You gave {"re',
        ),
        ({"ttl": "-1"}, "ttl", "-1"),
        ({"ttl": "0"}, "ttl", "0"),
        ({"task": "os.system"}, "task", "os.system"),
        ({"task": "os.system"}, "task", "Known: aegis_site.demo.tasks.send_digest"),
        ({"strategy": "etcd"}, "strategy", "etcd"),
        ({"lock_name": "No Spaces"}, "lock_name", "No Spaces"),
        ({"task": limited.name, "strategy": "optimistic", "ttl": "30"}, "ttl", "300"),
        ({"end_at": "2020-01-01T00:00"}, "cron_expression", "never fires"),
        ({"priority": "11"}, "priority", "9"),
        ({"misfire_grace": "0"}, "misfire_grace", "0"),
        ({"misfire_grace": "1e300"}, "misfire_grace", "At most 3155760000 seconds are kept here; you gave 1e+300."),
        ({"catch_up_window": "1e10"}, "catch_up_window", "At most 3155760000 seconds"),
        ({"ttl": "1e300"}, "ttl", "at most 2.592e+06 seconds"),
        (
            {"cron_expression": "", "once_at": "2099-01-31T06:00", "jitter_seconds": "1e300"},
            "jitter_seconds",
            "At most 3155760000 seconds",
        ),
        ({"jitter_seconds": "-1"}, "jitter_seconds", "-1"),
        ({"jitter_seconds": "86400"}, "jitter_seconds", "86400 s and two runs are only 84600 s"),
        ({"cron_expression": "", "every_seconds": "60", "jitter_seconds": "60"}, "jitter_seconds", "60 s"),
        ({"overlap": "queue_two"}, "overlap", "queue_two"),
    ],
)
def test_bad_input_is_refused_with_the_field_the_value_and_the_remedy(
    boss: Client, changes: dict[str, Any], field: str, said: str
) -> None:
    response = boss.post(reverse(ADD), filled(**changes))
    assert response.status_code == 200
    told = problems(response)
    assert field in told, told
    assert said in told[field]
    assert not Schedule.objects.exists()
    assert not LockName.objects.exists()


@pytest.mark.parametrize("args", ["[" * 3000, "[" * 900 + "]" * 900, "9" * 5000, '["' + "x" * 5000 + '"'])
def test_arguments_that_nobody_can_read_are_shown_again_and_told_in_short(boss: Client, args: str) -> None:
    for address, more in ((ADD, {}), (ADD, {"_preview": "1"}), (PREVIEW, {})):
        response = boss.post(reverse(address), filled(args=args, **more))
        assert response.status_code == 200
        assert address == PREVIEW or args in html.unescape(response.content.decode())
    assert len(problems(boss.post(reverse(ADD), filled(args=args)))["args"]) < 250


def test_the_preview_shows_the_next_five_runs_and_stores_nothing(boss: Client) -> None:
    response = boss.post(reverse(ADD), filled(_preview="1", lock_name="kept.as.typed"))
    page = response.content.decode()
    assert len(re.findall(r"<time datetime", page)) == 5
    assert "kept.as.typed" in page
    assert not Schedule.objects.exists()


def test_the_form_of_a_stored_schedule_shows_its_next_runs(boss: Client) -> None:
    schedule = make_schedule(every_seconds=90)
    page = boss.get(reverse(CHANGE, args=[schedule.pk])).content.decode()
    assert "Every 1 minute 30 seconds" in page or "Every 90 seconds" in page
    assert page.count("<time datetime") == 5


def test_a_changed_strategy_waits_and_is_noted(boss: Client) -> None:
    schedule = make_schedule("report", alias="redis", every_seconds=60)
    make_tick(schedule)
    response = boss.post(
        reverse(CHANGE, args=[schedule.pk]),
        filled(
            name="report", lock_name=schedule.lock_id, strategy="database", cron_expression="", every_seconds="60"
        ),
    )
    assert response.status_code == 302, problems(response)
    lock = LockName.objects.get()
    assert (lock.alias_wanted, lock.alias_in_force) == ("database", "redis")
    assert ScheduleChange.objects.get().after["strategy"] == "database"
    listed = boss.get(reverse("admin:aegis_scheduler_schedule_changelist")).content.decode()
    assert "redis → database when idle" in listed


def test_a_stale_form_does_not_rewind_what_a_beat_has_written(boss: Client) -> None:
    schedule = make_schedule("report", every_seconds=60)
    Schedule.objects.update(next_fire_at="2030-01-01T00:00:00Z")
    boss.post(
        reverse(CHANGE, args=[schedule.pk]),
        filled(
            name="report", lock_name=schedule.lock_id, cron_expression="", every_seconds="60", time_zone="UTC",
            notes="only a note",
        ),
    )  # fmt: skip
    schedule.refresh_from_db()
    assert schedule.notes == "only a note"
    assert schedule.next_fire_at is not None and schedule.next_fire_at.year == 2030


@pytest.mark.parametrize("model", ["tick", "execution", "lockname", "instance", "schedulechange"])
def test_facts_can_be_read_and_never_edited(boss: Client, model: str) -> None:
    make_tick(make_schedule())
    assert boss.get(reverse(f"admin:aegis_scheduler_{model}_changelist")).status_code == 200
    assert boss.get(reverse(f"admin:aegis_scheduler_{model}_add")).status_code == 403


def test_the_page_of_a_tick_has_its_seconds_and_the_words_of_the_glossary(boss: Client) -> None:
    tick = make_tick(make_schedule())
    page = boss.get(reverse("admin:aegis_scheduler_tick_change", args=[tick.pk])).content.decode()
    assert f"{tick.fire_time:%Y-%m-%d %H:%M:%S}" in page
    assert "The instant that the recurrence names, UTC." in page
    assert "Strategy:" in page
    assert "Tick guard:" in page
    assert "Lock alias" not in page


def test_the_model_has_the_same_bounds_as_its_form() -> None:
    schedule = make_schedule("report")
    for name in ("ttl", "misfire_grace", "catch_up_window", "jitter_seconds"):
        with pytest.raises(ValidationError, match=rf"{name}.*At most \d+ seconds are kept here; you gave 1e\+300"):
            Schedule(**{**vars_of(schedule), name: 1e300}).full_clean(exclude=["name"])


def vars_of(schedule: Schedule) -> dict[str, Any]:
    return {field.attname: getattr(schedule, field.attname) for field in schedule._meta.concrete_fields}


def test_a_schedule_that_code_stored_against_a_rule_of_the_form_can_be_switched_off(boss: Client) -> None:
    task = limited.name  # its time limit is above the window
    schedule = make_schedule("report", alias="optimistic", every_seconds=60, task=task, kwargs={})
    data = filled(
        name="report", task=task, kwargs="{}", lock_name=schedule.lock_id, strategy="optimistic", cron_expression="",
        every_seconds="60", enabled="",
    )  # fmt: skip
    response = boss.post(reverse(CHANGE, args=[schedule.pk]), data)
    assert response.status_code == 302, problems(response)
    schedule.refresh_from_db()
    assert not schedule.enabled
    again = boss.post(reverse(CHANGE, args=[schedule.pk]), data | {"ttl": "5"})
    assert "time limit" in problems(again)["ttl"]


def test_two_recurrences_are_told_once_and_in_plain_words(boss: Client) -> None:
    told = problems(boss.post(reverse(ADD), filled(every_seconds="60")))
    assert "2 are given" in told["cron_expression"]
    assert "Constraint" not in str(told)


def test_a_viewer_sees_schedules_and_a_forged_post_changes_nothing(client: Client) -> None:
    schedule = make_schedule(every_seconds=60)
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_schedule"))
    client.force_login(viewer)
    assert client.get(reverse(CHANGE, args=[schedule.pk])).status_code == 200
    for data in (filled(name="stolen"), filled(name="stolen", _preview="1")):
        assert client.post(reverse(CHANGE, args=[schedule.pk]), data).status_code == 403
    assert client.post(reverse(ADD), filled(_preview="1")).status_code == 403
    assert Schedule.objects.get().name == "nightly"


LIST = "admin:aegis_scheduler_schedule_changelist"


def test_the_preview_says_how_far_jitter_may_move_a_run(boss: Client) -> None:
    schedule = make_schedule(every_seconds=3600, jitter_seconds=90)
    page = boss.get(reverse(CHANGE, args=[schedule.pk])).content.decode()
    assert "up to 90 s after its time (jitter)" in page


def test_the_list_says_what_is_wrong_with_a_schedule(boss: Client) -> None:
    schedule = make_schedule("report", every_seconds=60)
    Schedule.objects.update(next_fire_at="2099-01-01T00:00:00Z")
    assert "further away than one period" in boss.get(reverse(LIST)).content.decode()
    Schedule.objects.filter(pk=schedule.pk).update(broken_reason="InvalidLockBackend: no redis")
    assert "InvalidLockBackend: no redis" in boss.get(reverse(LIST)).content.decode()


STATES = ("active", "overdue", "paused", "disabled", "broken", "finished")


def listed(client: Client, **filters: str) -> set[str]:
    response = client.get(reverse(LIST), filters)
    assert response.status_code == 200
    return {schedule.name for schedule in response.context["cl"].result_list}


@pytest.mark.parametrize("chosen", [{"state": "garbage"}, {"state": ""}, {"overlaps": "no"}, {"strategy": "garbage"}])
def test_a_filter_that_nobody_offers_leaves_nothing_and_can_be_cleared(boss: Client, chosen: dict[str, str]) -> None:
    make_schedule("report", every_seconds=60)
    assert listed(boss) == {"report"} and listed(boss, **chosen) == set()
    assert "Clear all filters" in boss.get(reverse(LIST), chosen).content.decode()


def test_each_schedule_is_under_the_state_that_the_list_says(boss: Client) -> None:
    """A beat may publish up to the jitter after the fire time: until then nothing is overdue."""
    now = database_now()
    for jitter in (0, 1000, 1e300):
        for ago in (-60, 5, 500, 5000):
            at = now - timedelta(seconds=ago)
            store(
                make_schedule(f"{ago} s ago, {jitter:g} s", lock_name="one", jitter_seconds=jitter), next_fire_at=at
            )
    store(make_schedule("none"), next_fire_at=None)
    store(make_schedule("finished"), exhausted=True, next_fire_at=None)
    shown = boss.get(reverse(LIST)).context["cl"].result_list
    words = {schedule.name: word_of(schedule, now).lower() for schedule in shown}
    assert {name for name, word in words.items() if word == "overdue"} == {
        "500 s ago, 0 s", "5000 s ago, 0 s", "5000 s ago, 1000 s",
    }  # fmt: skip
    for state in STATES:
        assert listed(boss, state=state) == {name for name, word in words.items() if word == state}


def test_the_list_asks_the_same_number_of_queries_for_one_schedule_and_for_twenty(boss: Client) -> None:
    counts = []
    for number in range(20):
        make_schedule(f"s{number}", every_seconds=60)
        if number in (0, 19):
            with CaptureQueriesContext(connection) as captured:
                boss.get(reverse(LIST))
            counts.append(len(captured))
    assert counts[0] == counts[1]
