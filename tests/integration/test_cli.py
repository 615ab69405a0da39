"""``manage.py aegis``: verbs, formats, exit codes."""

from __future__ import annotations

import json
import re
import socket
from datetime import datetime, timedelta
from io import StringIO
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command

from aegis_site.demo.fleet import FleetError, free_port
from scheduler.jitter import delay
from scheduler.minting import mint
from scheduler.models import Instance, LockName, Schedule, ScheduleChange, Tick
from scheduler.pausing import pause
from tests.support import CeleryProcesses
from tests.support.engine import database_now, make_schedule
from tests.support.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)

TASK = "aegis_site.demo.tasks.send_digest"


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("aegis", *arguments, stdout=out)
    return out.getvalue()


def test_next_names_the_runs_that_the_ticker_will_store() -> None:
    schedule = make_schedule("report", cron_expression="30 2 * * *", time_zone="Europe/Berlin")
    rows = json.loads(said("schedules", "next", "report", "-n", "3", "--format", "json"))["next"]
    assert len(rows) == 3
    mint()
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None
    assert rows[0]["utc"] == schedule.next_fire_at.isoformat()


def test_next_of_a_broken_row_says_what_is_wrong() -> None:
    make_schedule("broken", every_seconds=60)
    Schedule.objects.update(every_seconds=None, cron_expression="61 * * * *")
    with pytest.raises(CommandError, match=r"broken: .*61") as refused:
        said("schedules", "next", "broken")
    assert refused.value.returncode == 1


def test_every_verb_that_needs_the_database_says_that_it_is_away(celery_processes: CeleryProcesses) -> None:
    away = {"DATABASE_URL": "postgres://aegis:hunter2@127.0.0.1:1/aegis"}
    asked = ["locks list", "schedules list", "matrix list", "status", "alerts list", "export executions", "roles",
             "alive beat", "schedules adopt"]  # fmt: skip
    started = {
        verb: celery_processes.python(verb.replace(" ", "-"), "manage.py", "aegis", *verb.split(), env=away)
        for verb in asked
    }
    for verb, process in started.items():
        status, log = process.wait(60), process.log.read_text()
        assert status == 69, (verb, log)
        assert "The database does not answer: " in log and "Traceback" not in log, (verb, log)
        assert "hunter2" not in log


def test_every_verb_says_that_the_tables_are_not_there_yet(celery_processes: CeleryProcesses) -> None:
    address = database_url()
    options = quote("-c search_path=nowhere")
    bare = {"DATABASE_URL": f"{address}{'&' if '?' in address else '?'}options={options}"}
    asked = ["schedules list", "matrix list", "status", "alerts list", "alerts check", "export executions", "roles",
             "run report", "prune --older-than 90", "locks list", "alive worker"]  # fmt: skip
    started = {
        verb: celery_processes.python(verb.replace(" ", "-"), "manage.py", "aegis", *verb.split(), env=bare)
        for verb in asked
    }
    for verb, process in started.items():
        status, log = process.wait(60), process.log.read_text()
        assert status == 69, (verb, log)
        assert "The tables are not those of this version: run `manage.py migrate`." in log, (verb, log)
        assert "Traceback" not in log, (verb, log)


def test_next_says_how_much_later_each_run_is_published() -> None:
    schedule = make_schedule("report", every_seconds=3600, jitter_seconds=600)
    rows = json.loads(said("schedules", "next", "report", "--format", "json"))["next"]
    first = datetime.fromisoformat(rows[0]["utc"])
    assert rows[0]["jitter"] == f"+{delay(schedule.pk, first, 600).total_seconds():.3f} s"


def test_pause_and_resume_leave_a_trace_and_are_shown_in_the_list() -> None:
    make_schedule("report", every_seconds=60)
    assert "until it is resumed" in said("schedules", "pause", "report", "--reason", "audit", "--by", "ada")
    row = json.loads(said("schedules", "list", "--format", "json"))["list"][0]
    assert row["state"] == "Paused" and "by ada" in row["notes"][0] and "audit" in row["notes"][0]
    said("schedules", "resume", "report", "--reason", "done")
    assert "2099-01-01 06:00:00" in said(
        "schedules", "pause", "report", "--reason", "again", "--until", "2099-01-01T08:00+02:00"
    )
    changes = ScheduleChange.objects.order_by("id").values_list("who", "reason")
    assert [reason for _, reason in changes] == ["audit", "done", "again"]
    assert changes[0][0] == "ada" and changes[1][0]


def test_enable_disable_retarget_and_repair() -> None:
    make_schedule("report", every_seconds=60, alias="redis")
    assert "disabled" in said("schedules", "disable", "report", "--reason", "not wanted")
    assert "enabled" in said("schedules", "enable", "report")
    assert "follows" in said("schedules", "retarget", "report", "--strategy", "database")
    assert "at once" in said("schedules", "retarget", "report", "--lock", "optimistic", "--now", "--reason", "x")
    assert LockName.objects.get().alias_in_force == "optimistic"
    Schedule.objects.update(broken_reason="was broken")
    assert "can be read again" in said("schedules", "repair", "report")
    assert ScheduleChange.objects.count() == 5


def test_several_are_disabled_at_once_and_a_refusal_stops_no_other() -> None:
    for name in ("one", "two", "three"):
        make_schedule(name, every_seconds=60)
    assert said("schedules", "disable", "one", "one").splitlines() == ["one is disabled."]
    out = StringIO()
    with pytest.raises(CommandError, match=r"^one: It is disabled already\.$") as refused:
        call_command("aegis", "schedules", "disable", "two", "one", "three", "--reason", "audit", stdout=out)
    assert refused.value.returncode == 1
    assert out.getvalue().splitlines() == ["two is disabled.", "three is disabled."]
    assert not Schedule.objects.filter(enabled=True).exists()
    with pytest.raises(CommandError, match="There is no schedule 'for'") as unknown:
        said("schedules", "enable", "one", "for", "two")
    assert unknown.value.returncode == 2 and not Schedule.objects.filter(enabled=True).exists()


@pytest.mark.parametrize("kind", ["beat", "worker"])
def test_alive_tells_whether_one_of_this_host_has_shown_itself(kind: str) -> None:
    here, ago = socket.gethostname(), database_now() - timedelta(seconds=90)
    other = "worker" if kind == "beat" else "beat"
    Instance.objects.create(kind=kind, name="a", host="elsewhere", pid=1)
    Instance.objects.create(kind=other, name="b", host=here, pid=2)
    Instance.objects.create(kind=kind, name="c", host=here, pid=3, stopped_at=database_now())
    Instance.objects.create(kind=kind, name="d", host=here, pid=4, heartbeat_at=ago)
    with pytest.raises(CommandError, match=f"no {kind} of {here} has shown itself for 60 s") as silent:
        said("alive", kind)
    assert silent.value.returncode == 1
    assert said("alive", kind, "--within", "100") == ""


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("pause", "report"), "--reason"),
        (("pause", "report", "--reason", "x", "--until", "tomorrow"), "instant with a zone"),
        (("pause", "report", "--reason", "x", "--until", "2099-01-01T08:00"), "instant with a zone"),
        (("pause", "report", "--reason", "x", "--until", "2020-01-01T08:00Z"), "has passed"),
        (("pause", "reprot", "--reason", "x"), "Known: report"),
        (("resume", "report"), "not paused"),
        (("enable", "report"), "enabled already"),
        (("retarget", "report", "--strategy", "etcd"), "etcd"),
        (("retarget", "report"), "--strategy"),
        (("retarget", "report", "--strategy", "redis", "--lock", "redis"), "not allowed with"),
        (("repair", "report"), "Nothing is wrong"),
        (("explode", "report"), "explode"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(arguments: tuple[str, ...], match: str) -> None:
    make_schedule("report")
    with pytest.raises(CommandError, match=match):
        said("schedules", *arguments)
    assert not ScheduleChange.objects.exists()


@pytest.mark.parametrize(
    "arguments", [("pause",), ("resume",), ("enable",), ("disable",), ("retarget", "--strategy", "optimistic")]
)
def test_a_reason_that_is_too_long_is_refused_alike(arguments: tuple[str, ...]) -> None:
    make_schedule("report", enabled=arguments[0] != "enable")
    if arguments[0] == "resume":
        pause("report", why="audit", who="ada")
    before = ScheduleChange.objects.count()
    action, *more = arguments
    with pytest.raises(CommandError, match=r"501 characters; at most 500 are kept. Shorten it"):
        said("schedules", action, "report", *more, "--reason", "x" * 501)
    assert ScheduleChange.objects.count() == before


def test_an_unknown_schedule_is_refused_with_those_that_exist() -> None:
    make_schedule("report")
    with pytest.raises(CommandError, match=r"'reprot'.*report") as refusal:
        said("schedules", "next", "reprot")
    assert refusal.value.returncode == 2


def test_seed_can_be_repeated() -> None:
    for _ in range(2):
        said("seed")
    assert Schedule.objects.count() == LockName.objects.count() >= 7
    assert not Tick.objects.exists()


def test_list_has_no_escape_codes_when_it_is_piped() -> None:
    make_schedule("report", every_seconds=60)
    assert "\x1b" not in said("schedules", "list")
    head, row = said("schedules", "list").splitlines()
    assert head.split() == ["NAME", "STATE", "NEXT", "FIRE", "AT", "STRATEGY", "TICK", "GUARD", "TASK", "NOTES"]
    assert re.split(r"  +", row) == ["report", "Active", "-", "database", "on", TASK, "-"]


def test_list_calls_the_tick_guard_as_everything_else_does() -> None:
    make_schedule("report", once_per_tick=False)
    row = json.loads(said("schedules", "list", "--format", "json"))["list"][0]
    assert (row["tick_guard"], row["once_per_tick"]) == (False, False)


def test_a_port_in_use_is_told_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(FleetError, match=r"Port \d+ cannot be used.*--port 0"):
            free_port(taken.getsockname()[1])


@pytest.mark.parametrize(
    "arguments",
    [("schedules", "next", "report", "-n", "-3"), ("schedules", "next"), ("demo", "--port", "65536"),
     ("demo", "--workers", "x"), ("alive", "beat", "--within", "0")],
)  # fmt: skip
def test_a_number_that_makes_no_sense_or_a_missing_name_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"whole number from|Name the schedule"):
        said(*arguments)
