"""``manage.py aegis doctor``: what it prints and how it exits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from aegis_site.celery import app
from aegis_site.embedded import Services
from locks import lock_backends
from scheduler import retargeting
from scheduler.advice import advice
from scheduler.minting import mint
from scheduler.models import Execution, Instance, LockName, Schedule, Tick
from scheduler.presence import Presence, Worker
from scheduler.states import ExecutionState, TickOutcome, TickState
from scheduler.version import VERSION
from tests.support.engine import database_now, make_schedule, make_tick
from tests.support.processes import PROJECT, database_url
from tests.support.tasks import limited

pytestmark = pytest.mark.django_db(transaction=True)

STORES = ("redis", "redlock")  # of topics; tested by themselves


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    out = StringIO()
    status = 0
    try:
        call_command("aegis", "doctor", "--format", "json", *arguments, stdout=out)
    except CommandError as ended:
        status = ended.returncode
    return status, json.loads(out.getvalue())


def lines(topic: str, level: str = "") -> list[str]:
    """The sentences of one topic; with a level only those."""
    _, said = doctor()
    found = said["findings"]
    return [f["sentence"] for f in found if f["topic"] == topic and (not level or f["level"] == level)]


def only(topic: str, level: str) -> str:
    found = lines(topic, level)
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def fleet() -> Presence:
    """A beat and a worker that show themselves; returns the worker."""
    Presence("beat").stamp()
    queues = ("celery", "aegis.every_worker")
    worker = Presence("worker", "w1@test", lambda: Worker(pool="prefork", concurrency=2, queues=queues))
    for _ in range(2):  # the second carries the offset of its clock
        worker.stamp()
    return worker


def test_a_healthy_project_exits_0_and_each_line_has_its_place(fleet: Presence) -> None:
    make_schedule("nightly", every_seconds=3600)
    status, said = doctor()
    assert status == 0, said
    assert said["schema"] == 1 and said["database"] is True and said["exit_status"] == 0
    assert said["counts"]["fail"] == 0
    assert {f["topic"] for f in said["findings"] if f["level"] != "ok"} <= set(STORES)
    assert [f["topic"] for f in said["findings"]] == sorted((f["topic"] for f in said["findings"]), key=_ORDER.index)
    assert all(bool(f["remedy"]) == (f["level"] != "ok") for f in said["findings"])
    assert "2 processes run version" in " ".join(lines("code"))
    sentences = [f["sentence"] for f in said["findings"]]
    assert len(set(sentences)) == len(sentences)


_ORDER = ["settings", "broker", "leases", "locks", "redis", "redlock", "postgres", "code", "schedules", "life"]


def test_a_warning_fails_only_where_that_was_asked_for(fleet: Presence) -> None:
    make_schedule("nightly", every_seconds=3600)
    assert doctor()[0] == 0  # the embedded nodes share a host, which is a warning
    status, said = doctor("--strict")
    assert (status, said["verdict"]) == (1, "warn")


def test_the_table_has_a_line_each_and_no_escape_codes(fleet: Presence) -> None:
    out = StringIO()
    call_command("aegis", "doctor", stdout=out)
    text = out.getvalue()
    *table, empty, counts = text.rstrip("\n").split("\n")
    assert all(line[:5] in ("ok   ", "warn ", "fail ") for line in table), table
    assert all(("  -> " in line) == (not line.startswith("ok")) for line in table)
    assert empty == "" and counts.endswith("0 fail")
    assert "\x1b" not in text


def secrets_of(environment: dict[str, str]) -> list[str]:
    urls = " ".join(environment[name] for name in ("CELERY_BROKER_URL", "REDIS_URL", "REDLOCK_URLS", "CACHE_URL"))
    return [part.split("@")[0] for part in urls.split("://:")[1:]]


def test_no_password_is_ever_printed() -> None:
    hidden = secrets_of(dict(os.environ))
    assert len(hidden) >= 4
    _, said = doctor()
    assert not [secret for secret in hidden if secret in json.dumps(said)]


# the database


@pytest.mark.faults
def test_without_the_database_it_exits_69_and_looks_at_the_rest(services: Services) -> None:
    connections.close_all()  # this thread's would not outlive the server
    services.postgres.stop()
    status, said = doctor()
    assert (status, said["database"]) == (69, False)
    levels = {(f["topic"], f["level"]) for f in said["findings"]}
    assert ("postgres", "fail") in levels
    assert ("redis", "ok") in levels and ("redlock", "ok") in levels and ("broker", "ok") in levels
    unknown = {f["topic"] for f in said["findings"] if f["sentence"].startswith("could not look")}
    assert {"leases", "code", "schedules", "life"} <= unknown
    services.postgres.start()
    assert doctor()[0] != 69


@pytest.mark.faults
def test_stores_that_hang_are_bounded(services: Services) -> None:
    """Both Redis servers and the database swallow everything: three rounds of three seconds, not minutes."""
    for server in (services.redis["broker"], services.redis["locks"], services.postgres):
        server.pause()
    started = time.monotonic()
    status, said = doctor()
    took = time.monotonic() - started
    for server in (services.redis["broker"], services.redis["locks"], services.postgres):
        server.resume()
    assert status == 69
    assert took < 30, took
    sentences = [f["sentence"] for f in said["findings"] if f["level"] != "ok"]
    assert any(s.startswith("redis at") and "TimeoutError" in s for s in sentences), sentences
    assert any(f["topic"] == "redlock" and f["level"] == "ok" for f in said["findings"])


@pytest.mark.faults
def test_a_broker_that_is_down(services: Services, fleet: Presence) -> None:
    services.redis["broker"].kill()
    status, _ = doctor()
    assert status == 1
    assert "no connection" in only("broker", "fail")


def test_a_clock_that_is_wrong_and_a_migration_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db.migrations.recorder import MigrationRecorder

    real = time.time
    monkeypatch.setattr("scheduler.doctor.database.time.time", lambda: real() + 5)
    # The exchange takes a moment, and by half of it the answer may be off.
    assert re.search(r"clock is \+(4\.[5-9]|5\.[0-4])", only("postgres", "warn"))
    monkeypatch.undo()
    newest = MigrationRecorder.Migration.objects.filter(app="aegis_scheduler").order_by("name").last()
    assert newest is not None
    newest.delete()
    try:
        assert f"from aegis_scheduler.{newest.name} on" in only("postgres", "fail")
    finally:
        newest.save(force_insert=True)


# settings


@override_settings(AEGIS={"HEARTBEAT": 3}, BROKER_TRANSPORT_OPTIONS={"visibility_timeout": 7200})
def test_what_manage_py_check_says_is_said_here(fleet: Presence) -> None:
    assert "aegis.scheduler.E002" in only("settings", "fail")
    assert "BROKER_TRANSPORT_OPTIONS['visibility_timeout'] = 7200" in only("settings", "warn")
    assert "visibility time-out 3600 s (the default)" in lines("broker")[-1]


def test_a_time_out_in_the_wrong_place_in_a_process_of_its_own(tmp_path: Path) -> None:
    """As its user meets it: the value is in the settings, and workers use another."""
    make_schedule("nightly", every_seconds=3600)
    wrong = {"DJANGO_SETTINGS_MODULE": "tests.support.wrong_place_settings", "DATABASE_URL": database_url()}
    run = subprocess.run(
        [sys.executable, "manage.py", "aegis", "doctor", "--format", "json"],
        cwd=PROJECT, env={**os.environ, **wrong}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    found = json.loads(run.stdout)["findings"]
    (told,) = (f for f in found if "aegis.scheduler.W002" in f["sentence"])
    assert "CELERY_BROKER_TRANSPORT_OPTIONS['visibility_timeout']" in told["remedy"]
    assert any("visibility time-out 3600 s (the default)" in f["sentence"] for f in found)
    assert run.returncode == 1  # no beat


@override_settings(LOCKS={"bad": {"BACKEND": "nothing.There"}, "own": {"BACKEND": "tests.support.backends.Quiet"}})
def test_a_backend_made_elsewhere_may_say_nothing_and_a_bad_entry_hides_no_other() -> None:
    assert "nothing.There" in only("locks", "fail")
    assert not lines("redlock")


# leases


def test_a_window_that_is_shorter_than_the_hard_limit(fleet: Presence) -> None:
    make_schedule("nightly", every_seconds=3600, alias="optimistic", task=limited.name)
    assert "nightly: 6 s, limit 300 s" in only("leases", "fail")


def test_a_lease_longer_than_the_period(fleet: Presence) -> None:
    make_schedule("often", every_seconds=2, ttl=30)
    assert "TTL 30 s, every 2 s): a crash may cost 15 ticks" in only("leases", "warn")


def test_the_observed_run_counts_where_no_limit_is_set(fleet: Presence) -> None:
    schedule = make_schedule("slow", every_seconds=86_400, ttl=3)
    tick = make_tick(schedule, state=TickState.CLOSED, outcome=TickOutcome.EXECUTED)
    now = database_now()
    Execution.objects.create(
        tick=tick, guarded=True, lock_name="lock.slow", lock_alias="database", state=ExecutionState.EXECUTED,
        lease_id="00000000-0000-0000-0000-000000000001", started_at=now, ended_at=now, ran=5000, began=True, token=1,
    )  # fmt: skip
    assert "slow may take 5000 s (99 of 100 runs of 7 days)" in only("broker", "warn")


# code


def test_a_task_that_nobody_declares(fleet: Presence) -> None:
    make_schedule("gone", task="app.tasks.gone")
    assert "no task app.tasks.gone is declared" in only("code", "fail")


def test_another_version_another_clock_another_pool(fleet: Presence) -> None:
    make_schedule("nightly", every_seconds=3600)
    Instance.objects.filter(name="w1@test").update(version="0.0.1", pool="gevent", clock_offset=-7.0)
    found = " ".join(lines("code", "warn"))
    assert "0.0.1: w1@test" in found and "-7.0 s" in found and "short leases" in found


# schedules


def test_schedules_that_do_not_fire(fleet: Presence) -> None:
    make_schedule("broken", cron_expression="0 2 * * *")
    Schedule.objects.filter(name="broken").update(broken_reason="ValueError: no such zone")
    assert "no such zone" in only("schedules", "fail")
    Schedule.objects.update(enabled=False)
    assert not lines("schedules", "fail")
    make_schedule("over", every_seconds=60, end_at=database_now() - timedelta(days=1))
    mint()
    assert "over: switched on, and will never fire again" in only("schedules", "warn")
    make_schedule("once", once_at=database_now() - timedelta(days=9), kwargs={"seconds": 1})
    mint()
    assert "once" not in only("schedules", "warn").split(":")[0]


def test_the_next_run_is_further_away_than_one_period(fleet: Presence) -> None:
    make_schedule("far", every_seconds=60)
    mint()
    Schedule.objects.filter(name="far").update(next_fire_at=database_now() + timedelta(hours=2))
    assert "far: the next run is further away" in only("schedules", "fail")


def test_a_schedule_that_is_always_refused(fleet: Presence) -> None:
    schedule = make_schedule("starved", every_seconds=3600)
    for n in range(3):
        make_tick(
            schedule, seconds_ago=60 * n, state=TickState.CLOSED, outcome=TickOutcome.PREVENTED, reason="held",
            closed_at=database_now(),
        )  # fmt: skip
    assert "starved: refused three times" in only("schedules", "warn")


def test_lock_names_that_do_not_guard(fleet: Presence) -> None:
    one = make_schedule("one", every_seconds=3600, kwargs={"seconds": 1})
    make_schedule("two", every_seconds=3600, kwargs={"seconds": 1})
    assert "one, two run aegis_site.demo.tasks.send_digest with the same arguments" in only("schedules", "warn")
    Schedule.objects.filter(name="two").delete()
    make_tick(one, seconds_ago=90)
    retargeting.retarget("one", "redis", who="ada")
    assert not lines("schedules", "warn")  # it was wished a moment ago
    one.changes.update(changed_at=database_now() - timedelta(seconds=75))
    assert "'database' is in force, 'redis' was wanted for 7" in only("schedules", "warn")
    LockName.objects.update(alias_wanted="etcd")
    assert "strategy 'etcd' is not in LOCKS" in only("schedules", "fail")


def test_a_task_that_is_called_beside_its_schedule(fleet: Presence) -> None:
    """Under a lock name that is made of the task's: said where calls do run, and not of every schedule."""
    digest = app.tasks["aegis_site.demo.tasks.send_digest"]
    make_schedule("digest", every_seconds=3600, lock_name="digest")
    assert not lines("schedules", "warn")
    digest()
    said = only("schedules", "warn")
    assert said.startswith("digest: calls of the task") and f"(digest, {digest.name})" in said
    Schedule.objects.update(lock=LockName.objects.get(name=digest.name))
    assert not lines("schedules", "warn")


# life


def test_nobody_is_alive() -> None:
    make_schedule("nightly", every_seconds=3600)
    assert [line.split(":")[0] for line in lines("life", "fail")] == ["no beat is alive", "no worker is alive"]


def test_a_beat_that_fell_silent_and_one_that_said_good_bye(fleet: Presence) -> None:
    Instance.objects.filter(kind="beat").update(heartbeat_at=database_now() - timedelta(seconds=40))
    assert "the last pass was 4" in only("life", "fail")
    assert "fell silent without saying good-bye" in only("life", "warn")
    fleet.leave()
    assert "no worker is alive" in " ".join(lines("life", "fail"))


def test_the_queue_of_a_task_is_the_one_that_its_declaration_names(
    fleet: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.tasks[limited.name], "queue", "emails", raising=False)
    schedule = make_schedule("letters", every_seconds=3600, task=limited.name)
    assert "no live worker reads emails, to which letters" in only("life", "fail")
    (told,) = advice(schedule, "database", None)
    assert told.field == "queue" and "'emails'" in told.message


def test_a_queue_that_nobody_reads(fleet: Presence) -> None:
    make_schedule("report", every_seconds=3600, queue="reports")
    assert "no live worker reads reports, to which report are sent" in only("life", "fail")


def test_ticks_that_nobody_takes(fleet: Presence) -> None:
    schedule = make_schedule("report", every_seconds=3600)
    waiting = make_tick(schedule)
    assert "1 ticks wait" in " ".join(lines("life", "ok"))
    ago = database_now() - timedelta(seconds=20)
    Tick.objects.filter(pk=waiting.pk).update(fire_time=ago, planned_at=ago)
    assert "the oldest (report) for 2" in only("life", "warn")
    Tick.objects.filter(pk=waiting.pk).update(deadline=database_now() - timedelta(seconds=61))
    assert "no beat settles it" in only("life", "fail")


@pytest.mark.parametrize("alias", ["redis", "database"])
def test_a_body_that_fell_silent_and_holds_its_lease(fleet: Presence, alias: str) -> None:
    schedule = make_schedule("frozen", every_seconds=3600, alias=alias)
    tick = make_tick(schedule, state=TickState.STARTED)
    lease = lock_backends[alias].acquire("lock.frozen", ttl=60)
    assert lease is not None
    now = database_now()
    Execution.objects.create(
        tick=tick, guarded=True, lock_name="lock.frozen", lock_alias=alias, state=ExecutionState.RUNNING, token=1,
        lease_id=lease.lease_id, started_at=now, heartbeat_at=now - timedelta(seconds=70), began=True, worker="w1",
        pid=4,
    )  # fmt: skip
    assert "silent, still holds the lease: execution" in only("life", "warn")
    assert lock_backends[alias].release(lease)
    assert "silent without a lease, and no beat has given it up" in only("life", "warn")


def test_presence_says_what_a_process_is(fleet: Presence) -> None:
    worker = Instance.objects.get(kind="worker")
    assert (worker.version, worker.pool, worker.concurrency) == (VERSION, "prefork", 2)
    assert worker.queues == ["celery", "aegis.every_worker"]
    assert worker.clock_offset is not None and abs(worker.clock_offset) < 1
    assert worker.clock_error is not None and 0 <= worker.clock_error < 1


def test_a_process_goes_on_showing_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Also when its statement is prepared, and when a value was not known at first."""
    beat = Presence("beat")
    for _ in range(20):
        beat.stamp()
    assert [record.message for record in caplog.records if record.name == "aegis.presence"] == []
    assert Instance.objects.get().clock_offset is not None


def test_a_process_of_an_earlier_version_says_nothing_of_itself_and_is_seen(fleet: Presence) -> None:
    """Its INSERT names no new column: a deployment begins with the migration."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO aegis_scheduler_instance (kind, name, host, pid, started_at, heartbeat_at)"
            " VALUES ('worker', 'old@test', 'h', 5, clock_timestamp(), clock_timestamp())"
        )
    assert "not told: old@test" in " ".join(lines("code", "warn"))
