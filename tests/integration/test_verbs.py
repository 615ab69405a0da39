"""Verbs on schedules in Django admin and on the command line: pause, resume, run now."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connections
from django.test import Client
from django.urls import reverse

from aegis_site.embedded import Services
from locks import lock_backends
from scheduler import pausing, running
from scheduler.changes import Refused
from scheduler.models import Execution, Instance, Schedule, ScheduleChange, Tick
from scheduler.runner import run
from scheduler.states import ExecutionState
from scheduler.ticker import Ticker
from tests.integration.test_runner import nothing
from tests.support import wait_until
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick
from tests.support.pages import ran, staff

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:aegis_scheduler_schedule_changelist"
HOSTILE = "<script>alert('&')</script>"


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(staff("olga", "view_schedule", "pause_schedule", "run_schedule", "view_execution"))
    return client


def text(response: Any) -> str:
    html = response.content.decode()
    body = html[html.index('<div id="main"') :] if '<div id="main"' in html else html
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def address(verb: str) -> str:
    return reverse(f"admin:aegis_scheduler_schedule_{verb}")


def choose(client: Client, verb: str, *schedules: Schedule) -> Any:
    """The list's action, which leads to the page that asks."""
    chosen = {"action": f"{verb}_selected", "_selected_action": [schedule.pk for schedule in schedules]}
    return client.post(reverse(LIST), chosen, follow=True)


def do(client: Client, verb: str, *schedules: Schedule, **data: Any) -> Any:
    given = {"schedule": [schedule.pk for schedule in schedules], **data}
    return client.post(address(verb), given, follow=True)


def test_schedules_are_paused_and_resumed_with_a_trace(operator: Client) -> None:
    one, two = make_schedule("one", every_seconds=60), make_schedule("two", every_seconds=60)
    asked = text(choose(operator, "pause", one, two))
    assert "Pause 2 schedules" in asked and "A run in progress is not stopped" in asked
    assert not Schedule.objects.filter(paused_at__isnull=False).exists()
    page = do(operator, "pause", one, two, reason="audit <b>", until="2099-01-31T06:00")
    assert "2 schedules were paused." in text(page)
    assert "Paused by olga until 2099-01-31 06:00:00 UTC: audit &lt;b&gt;" in page.content.decode()
    assert set(ScheduleChange.objects.values_list("schedule_name", "who", "reason")) == {
        ("one", "olga", "audit <b>"),
        ("two", "olga", "audit <b>"),
    }
    assert LogEntry.objects.filter(change_message__contains="Paused: audit").count() == 2
    asked = text(choose(operator, "resume", one))
    assert "next run" in asked and "Nothing is run for the time of the pause" in asked
    assert "1 schedule was resumed; nothing is run for the pause." in text(do(operator, "resume", one, reason="done"))
    page = text(do(operator, "resume", one, two))
    assert "Schedule &#x27;one&#x27;: It is not paused" in page and "1 schedule was resumed" in page
    assert not Schedule.objects.filter(paused_at__isnull=False).exists()
    assert not Tick.objects.exists()


def test_schedules_are_disabled_and_enabled_with_a_trace(client: Client) -> None:
    client.force_login(staff("olga", "view_schedule", "change_schedule"))
    one, two = make_schedule("one", every_seconds=60), make_schedule("two", every_seconds=60)
    ran(make_tick(one), "w@1", 0.0, None)
    asked = text(choose(client, "disable", one, two))
    assert "Disable 2 schedules" in asked and "w@1 is inside since" in asked
    assert Schedule.objects.filter(enabled=True).count() == 2
    assert "2 schedules were disabled." in text(do(client, "disable", one, two, reason="audit"))
    assert not Schedule.objects.filter(enabled=True).exists()
    changes = ScheduleChange.objects.values_list("schedule_name", "who", "reason", "after")
    assert sorted(changes) == [(name, "olga", "audit", {"enabled": False}) for name in ("one", "two")]
    assert LogEntry.objects.filter(change_message__contains="Disabled. audit").count() == 2
    pausing.pause("two", why="r", who="ada")
    Schedule.objects.filter(name="one").update(enabled=True)
    asked = text(choose(client, "enable", one, two))
    assert "It is enabled already." in asked and "It is paused, and fires once it is resumed." in asked
    page = text(do(client, "enable", one, two))
    assert "Schedule &#x27;one&#x27;: It is enabled already" in page and "1 schedule was enabled." in page
    assert Schedule.objects.filter(enabled=True).count() == 2


@pytest.fixture
def no_room_for_notes() -> Iterator[None]:
    """The database takes no row of the change history."""
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE aegis_scheduler_schedulechange ADD CONSTRAINT no_room CHECK (false) NOT VALID")
    yield
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE aegis_scheduler_schedulechange DROP CONSTRAINT no_room")


@pytest.mark.parametrize("verb", ["pause", "disable", "run", "delete"])
def test_what_cannot_be_noted_is_not_done(client: Client, no_room_for_notes: None, verb: str) -> None:
    client.force_login(User.objects.create_superuser("boss"))
    schedules = [make_schedule(name, every_seconds=60) for name in ("one", "two")]
    before = list(Schedule.objects.order_by("pk").values())
    client.raise_request_exception = False
    if verb == "delete":
        chosen = {"action": "delete_selected", "_selected_action": [one.pk for one in schedules], "post": "yes"}
        answer = client.post(reverse(LIST), chosen)
    else:
        answer = do(client, verb, *schedules, reason="audit", key=uuid4())
    assert (answer.status_code, answer.exc_info[0]) == (500, IntegrityError)
    assert list(Schedule.objects.order_by("pk").values()) == before
    assert not Tick.objects.exists()


@pytest.mark.parametrize(("enabled", "offered"), [(True, "disable"), (False, "enable")])
def test_a_schedules_page_offers_the_switch_that_fits(client: Client, enabled: bool, offered: str) -> None:
    schedule = make_schedule("one", enabled=enabled)
    client.force_login(staff("olga", "view_schedule", "change_schedule"))
    page = client.get(reverse("admin:aegis_scheduler_schedule_page", args=[schedule.pk])).content.decode()
    assert [verb for verb in ("enable", "disable") if address(verb) in page] == [offered]


def test_a_switch_needs_the_permission_to_change(operator: Client) -> None:
    schedule = make_schedule("one")
    assert do(operator, "disable", schedule).status_code == 403
    assert Schedule.objects.get().enabled


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "Give a reason"),
        ({"reason": " "}, "Give a reason"),
        ({"reason": "x" * 501}, "At most 500"),
        ({"reason": "x", "until": "soon"}, "This is no date and time"),
        ({"reason": "x", "until": "2020-01-01T00:00"}, "has passed"),
    ],
)
def test_a_pause_without_a_reason_or_with_a_strange_end_is_refused(
    operator: Client, data: dict[str, str], said: str
) -> None:
    assert said in text(do(operator, "pause", make_schedule("one"), **data))
    assert Schedule.objects.get().paused_at is None and not ScheduleChange.objects.exists()


@pytest.mark.parametrize("alias", ["none", "unguarded"])
def test_a_strategy_without_a_lock_is_marked_whatever_its_name(operator: Client, settings: Any, alias: str) -> None:
    settings.LOCKS = {**settings.LOCKS, alias: {"BACKEND": "locks.backends.none.NoLockBackend"}}
    schedule = make_schedule("one", alias=alias)
    assert f"Strategy {alias}: nothing keeps it" in text(operator.get(address("run"), {"schedule": schedule.pk}))
    assert "no lock, tick guard" in text(operator.get(reverse(LIST)))
    page = reverse("admin:aegis_scheduler_schedule_page", args=[schedule.pk])
    assert f"Strategy: {alias} (no lock)" in text(operator.get(page))


@pytest.mark.parametrize("verb", ["pause", "resume", "run"])
def test_a_verb_needs_its_permission_the_view_and_a_token(client: Client, verb: str) -> None:
    schedule = make_schedule("one")
    given = {"reason": "r", "key": uuid4()}
    for codenames in (("change_schedule",), ("run_schedule", "pause_schedule")):
        client.force_login(staff("-".join(codenames), *codenames))
        assert client.get(address(verb), {"schedule": schedule.pk}).status_code == 403
        assert do(client, verb, schedule, **given).status_code == 403
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(User.objects.create_superuser("root"))
    assert do(careful, verb, schedule, **given).status_code == 403
    client.force_login(staff("viewer", "view_schedule"))
    assert "pause_selected" not in client.get(reverse(LIST)).content.decode()
    choose(client, verb, schedule)
    schedule.refresh_from_db()
    assert schedule.paused_at is None and not Tick.objects.exists() and not ScheduleChange.objects.exists()


@pytest.mark.parametrize("ids", [[], ["x"], ["0"], ["99999999999999999999"], ["²"]])
def test_strange_choices_are_sent_back_to_the_list(operator: Client, ids: list[str]) -> None:
    for response in (
        operator.get(address("pause"), {"schedule": ids}, follow=True),
        operator.post(address("pause"), {"schedule": ids, "reason": "r"}, follow=True),
    ):
        assert "Choose the schedules first." in text(response)


def test_a_run_is_asked_for_once_however_often_the_form_is_sent(operator: Client) -> None:
    schedule = make_schedule("one", queue="slow", priority=7)
    asked = operator.get(address("run"), {"schedule": schedule.pk})
    assert "The lock is free" in text(asked)
    key = asked.context["form"]["key"].value()
    for _ in range(3):
        page = do(operator, "run", schedule, key=key, reason=HOSTILE)
        assert "Asked for" in text(page) and "Run of one by hand" in text(page)
    tick = Tick.objects.get()
    assert (tick.queue, tick.priority, tick.overlap) == ("slow", 7, "skip")
    change = ScheduleChange.objects.get()
    assert (change.who, change.reason, change.after) == ("olga", HOSTILE, {"run by hand": f"tick {tick.pk}"})
    assert LogEntry.objects.filter(change_message__contains="Run by hand").exists()


def test_two_schedules_do_not_share_a_key(operator: Client) -> None:
    one, two = make_schedule("one"), make_schedule("two")
    do(operator, "run", one, two, key=uuid4())
    assert Tick.objects.count() == 2


def test_the_result_page_says_how_the_run_stands(operator: Client) -> None:
    schedule = make_schedule("one")
    tick = running.ask("one", key="k", who="ada")
    page = reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk])
    assert "No beat is alive" in text(operator.get(page))
    inner: list[str] = []
    run(delivery_of(tick), lambda context: inner.append(text(operator.get(page))))
    assert "Started It is running." in inner[0] and "worker@test" in inner[0]
    done = operator.get(page)
    assert "Ran once" in text(done) and "Look again" not in text(done)
    execution = Execution.objects.get()
    assert reverse("admin:aegis_scheduler_execution_change", args=[execution.pk]) in done.content.decode()


def test_a_run_of_a_held_schedule_names_the_holder_and_enters_nothing(operator: Client) -> None:
    schedule = make_schedule("one")
    first = make_tick(schedule)
    entered: list[str] = []

    def hold(context: Any) -> None:
        asked = text(operator.get(address("run"), {"schedule": schedule.pk}))
        assert "Held by worker@3" in asked
        tick = running.ask("one", key="k", who="ada")
        outcome = run(delivery_of(tick), lambda context: entered.append("inside"))
        assert outcome.state is ExecutionState.PREVENTED
        token = Execution.objects.get(state="running").token
        shown = operator.get(reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk]))
        assert f"Held by worker@3 (token {token})." in text(shown)
        holder = Execution.objects.get(state="running")
        assert reverse("admin:aegis_scheduler_execution_change", args=[holder.pk]) in shown.content.decode()

    run(delivery_of(first, worker="worker@3"), hold)
    assert entered == [] and Execution.objects.filter(began=True).count() == 1


def test_a_run_that_waits_says_so(operator: Client) -> None:
    schedule = make_schedule("one")

    def hold(context: Any) -> None:
        page = do(operator, "run", schedule, key=uuid4(), if_held="queue_one")
        tick = Tick.objects.get(manual_key__isnull=False)
        run(delivery_of(tick), nothing)
        shown = operator.get(reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk]))
        assert "Waiting" in text(shown) and "follows when that run ends" in text(shown)
        assert page.status_code == 200

    run(delivery_of(make_tick(schedule), worker="worker@3"), hold)


def test_a_run_that_cannot_be_stored_is_refused_with_the_remedy(settings: Any, operator: Client) -> None:
    gone, long = make_schedule("gone", alias="redis"), make_schedule("long", misfire_grace=1e300)
    settings.LOCKS = {alias: entry for alias, entry in settings.LOCKS.items() if alias != "redis"}
    for schedule, said in (
        (gone, "Strategy 'redis' guards it and cannot be used: No lock backend 'redis'. Add it to settings.LOCKS"),
        (long, "The grace of 1e+300 s ends beyond the calendar; give the schedule a shorter one."),
    ):
        assert operator.get(address("run"), {"schedule": schedule.pk}).status_code == 200
        asked = do(operator, "run", schedule, key=uuid4())
        assert asked.status_code == 200 and said in html.unescape(text(asked))
        with pytest.raises(CommandError, match=re.escape(said)) as refused:
            call_command("aegis", "run", schedule.name)
        assert refused.value.returncode == 2
    both = html.unescape(text(do(operator, "run", gone, long, key=uuid4())))
    assert "Schedule 'gone': Strategy 'redis'" in both and "Schedule 'long': The grace" in both
    assert not Tick.objects.exists() and not ScheduleChange.objects.exists()


def test_a_missed_run_says_so(operator: Client) -> None:
    schedule = make_schedule("one", misfire_grace=0.001)
    tick = running.ask("one", key="k", who="ada")
    Ticker().tick()
    tick.refresh_from_db()
    assert tick.outcome == "misfired"
    assert "Missed" in text(operator.get(reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk])))


def test_a_run_that_no_beat_can_send_says_what_to_look_at(services: Services, operator: Client) -> None:
    schedule = make_schedule("one")
    tick = running.ask("one", key="k", who="ada")
    page = reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk])
    assert "Asked for A beat sends it within a second." in text(operator.get(page))
    services.redis["broker"].stop()
    Ticker().tick()
    said = "No beat has been able to send it yet. Look whether a beat runs"
    wait_until(lambda: f"Asked for {said}" in text(operator.get(page)), message="the page says so")
    status, told = command("run", "one", "--key", "k", "--wait", "0")
    assert status == 75 and said in told and "whether the broker answers; manage.py aegis doctor" in told
    services.restore()
    wait_until(lambda: Ticker().tick() and "Sent" in text(operator.get(page)), message="it is sent")


def test_a_paused_schedule_runs_by_hand(operator: Client) -> None:
    schedule = make_schedule("one")
    do(operator, "pause", schedule, reason="audit")
    assert "It is paused; this run happens all the same" in text(
        operator.get(address("run"), {"schedule": schedule.pk})
    )
    do(operator, "run", schedule, key=uuid4())
    assert run(delivery_of(Tick.objects.get()), nothing).state is ExecutionState.EXECUTED


def test_the_result_of_another_schedule_or_of_no_manual_run_is_not_found(operator: Client) -> None:
    one, two = make_schedule("one"), make_schedule("two")
    by_hand, by_time = running.ask("one", key="k", who="ada"), make_tick(two)
    for schedule, tick in ((two, by_hand), (two, by_time), (one, by_time)):
        page = reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk])
        assert operator.get(page).status_code == 404


def test_a_user_asks_for_a_few_runs_a_minute_over_all_processes(settings: Any, operator: Client) -> None:
    settings.AEGIS = {**getattr(settings, "AEGIS", {}), "RATE_LIMITS": {"run_now": 3}}
    schedule, user = make_schedule("one"), User.objects.get()
    answers: list[str] = []
    gate = threading.Barrier(6)

    def ask(number: int) -> None:
        gate.wait(10)
        try:
            running.ask("one", key=f"k{number}", who=user)
            answers.append("asked")
        except Refused:
            answers.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask, args=[number]) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert sorted(answers) == ["asked"] * 3 + ["refused"] * 3
    response = do(operator, "run", schedule, key=uuid4())
    assert response.status_code == 429 and "3 times within a minute" in text(response)
    assert Tick.objects.count() == 3


@pytest.mark.parametrize("threads", [8])
def test_one_key_at_once_from_everywhere_is_one_run_and_one_row(operator: Client, threads: int) -> None:
    make_schedule("one")
    user, gate, found = User.objects.get(), threading.Barrier(threads), []

    def ask() -> None:
        gate.wait(10)
        found.append(running.ask("one", key="k", who=user).pk)
        connections.close_all()

    workers = [threading.Thread(target=ask) for _ in range(threads)]
    [worker.start() for worker in workers]
    [worker.join(20) for worker in workers]
    assert len(found) == threads and len(set(found)) == 1 and ScheduleChange.objects.count() == 1


def test_a_limit_of_nonsense_is_told(settings: Any) -> None:
    from scheduler.checks import check_settings

    for wrong in (5, {"run_now": 0}, {"run_now": True}, {"runs": 3}):
        settings.AEGIS = {"RATE_LIMITS": wrong}
        assert [found.id for found in check_settings()] == ["aegis.scheduler.E005"], wrong


def command(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("aegis", *arguments, stdout=out, stderr=StringIO())
    except CommandError as failed:
        return failed.returncode, out.getvalue() or str(failed)
    return 0, out.getvalue()


def test_the_command_says_by_its_exit_status_what_became_of_the_run() -> None:
    schedule = make_schedule("one")
    assert command("run", "nosuch")[0] == 2
    status, said = command("run", "one", "--wait", "0", "--key", "k", "--format", "json")
    found = json.loads(said)
    assert status == 75 and found["state"] == "Asked for" and not found["over"]
    tick = Tick.objects.get()
    run(delivery_of(tick), nothing)
    status, said = command("run", "one", "--key", "k", "--format", "json")
    assert status == 0 and json.loads(said)["tick"] == tick.pk and Tick.objects.count() == 1
    failing = running.ask("one", key="f", who="ada")

    def fail(context: Any) -> None:
        raise ValueError("no")

    assert run(delivery_of(failing), fail).state is ExecutionState.FAILED
    assert command("run", "one", "--key", "f") == (1, "one: Failed. The task raised.\n")

    def hold(context: Any) -> None:
        held = running.ask("one", key="h", who="ada")
        run(delivery_of(held), nothing)
        assert command("run", "one", "--key", "h", "--wait", "0")[0] == 75

    run(delivery_of(make_tick(schedule)), hold)
    assert (
        command("run", "one", "--key", "", "--wait", "0")[0] == 75
        and command("run", "one", "--key", "x" * 200)[0] == 2
    )


def test_the_command_without_a_database_says_unavailable(services: Any) -> None:
    make_schedule("one")
    services.postgres.pause()
    for connection in connections.all():
        connection.close()
    try:
        status, _ = command("run", "one", "--wait", "0")
    finally:
        services.postgres.resume()
        connections.close_all()
    assert status == 69


def test_who_holds_is_told_by_the_store_where_no_execution_says_so(operator: Client) -> None:
    schedule = make_schedule("one")
    lease = lock_backends["database"].acquire(schedule.lock_id, ttl=60)
    assert lease is not None
    assert "(no execution)" in text(operator.get(address("run"), {"schedule": schedule.pk}))
    lock_backends["database"].release(lease)


def test_beats_and_workers_alive_are_taken_into_account(operator: Client) -> None:
    schedule = make_schedule("one")
    tick = running.ask("one", key="k", who="ada")
    now = database_now()
    Instance.objects.create(kind="beat", name="beat@a", host="a", pid=1, started_at=now, heartbeat_at=now)
    page = reverse("admin:aegis_scheduler_schedule_ran", args=[schedule.pk, tick.pk])
    assert "No worker is alive" in text(operator.get(page))
