"""``scheduler.declare``: schedules in code, by the checks of the form."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from aegis_site.demo.tasks import send_digest
from scheduler import declare, pausing
from scheduler.minting import mint
from scheduler.models import LockName, Schedule, ScheduleChange
from scheduler.notes import notes
from scheduler.registry import declared_names, exclusive_tasks
from scheduler.retargeting import retarget
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import database_now, make_schedule, make_tick, store
from tests.support.tasks import limited

pytestmark = pytest.mark.django_db(transaction=True)

TASK = "aegis_site.demo.tasks.send_digest"
DEEP = json.loads("[" * 101 + "]" * 101)
AT = datetime(2099, 1, 31, 6, tzinfo=UTC)


def test_a_schedule_is_made_with_its_lock_name_and_a_row_of_the_history() -> None:
    made = declare("Nightly report", task=send_digest, cron="30 2 * * *", time_zone="Europe/Berlin", ttl=20)
    stored = Schedule.objects.get()
    assert made == stored and (stored.task, stored.cron_expression, stored.ttl) == (TASK, "30 2 * * *", 20.0)
    assert (stored.lock_id, stored.lock.alias_wanted) == ("nightly-report", "database")  # of its name, of its task
    change = ScheduleChange.objects.get()
    assert (change.who, change.changed_by, change.after["created"]) == ("code (declare)", None, "Nightly report")


@pytest.mark.parametrize(
    "said",
    [
        {"cron": "*/5 * * * *", "kwargs": {"seconds": 1}},
        {"every": timedelta(minutes=5), "args": (1.5,), "jitter_seconds": 10},
        {"at": AT, "start_at": AT - timedelta(days=1), "end_at": None, "notes": "by code\n", "priority": 3},
    ],
)
def test_the_same_call_again_changes_nothing(said: dict[str, Any]) -> None:
    declare("report", task=TASK, strategy="redis", **said)
    mint()
    before = Schedule.objects.values().get()
    assert before["next_fire_at"]
    names = list(LockName.objects.values())
    for _ in range(2):
        declare(" report ", task=send_digest, strategy="redis", **said)
    assert Schedule.objects.values().get() == before and list(LockName.objects.values()) == names
    assert ScheduleChange.objects.count() == 1


def test_an_edit_is_stored_and_one_kind_of_recurrence_takes_the_place_of_another() -> None:
    declare("report", task=TASK, cron="*/5 * * * *", kwargs={"seconds": 1})
    changed = declare("report", task=TASK, every=60, kwargs={"seconds": 2})
    assert (changed.cron_expression, changed.every_seconds, changed.kwargs) == ("", 60, {"seconds": 2})
    assert ScheduleChange.objects.latest("pk").before == {
        "cron_expression": "*/5 * * * *", "every_seconds": None, "kwargs": {"seconds": 1},
    }  # fmt: skip


def test_what_is_left_out_stays_as_operators_have_it() -> None:
    declare("report", task=TASK, every=60, lock_name="reports", misfire_grace=5, ttl=20)
    pausing.switch("report", enabled=False, who="ada")
    retarget("report", "redis", why="", who="ada")
    declare("report", task=TASK, every=60)
    stored = Schedule.objects.get()
    assert (stored.enabled, stored.lock_id, stored.misfire_grace) == (False, "reports", 5.0)
    assert stored.lock.alias_wanted == "redis" and ScheduleChange.objects.latest("pk").who == "ada"
    assert declare("report", task=TASK, every=60, ttl=None, enabled=True).ttl is None


def test_a_second_schedule_of_a_lock_name_has_its_strategy() -> None:
    make_schedule("other", alias="redis", lock_name="shared")
    assert declare("report", task=TASK, every=60, lock_name="shared").lock.alias_wanted == "redis"


@pytest.mark.parametrize(
    ("said", "field", "told"),
    [
        ({"task": "aegis_site.demo.tasks.send_digset"}, "task", '"aegis_site.demo.tasks.send_digset" is not known'),
        ({"task": "aegis_site.demo.tasks.send_digset"}, "task", f"Known: .*{TASK}"),
        ({"kwargs": {"colour": "s3cret"}}, "kwargs", "unexpected keyword argument 'colour'"),
        ({"args": [1, 2, 3]}, "kwargs", "too many positional arguments"),
        ({"args": "north"}, "args", "must be a list; you gave a str"),
        ({"kwargs": {"seconds": AT}}, "kwargs", "datetime is not JSON serializable"),
        ({"every": None, "cron": "61 * * * *"}, "cron", "61"),
        ({"every": None, "cron": "0 0 31 2 *"}, "cron", "never fires"),
        ({"cron": "* * * * *", "every": 60}, "cron", "exactly one of cron, every and once at; 2 are given"),
        ({"every": None}, "cron", "exactly one .*; none is given"),
        ({"every": 0}, "every", "1 or more; you gave 0"),
        ({"every": 1.5}, "every", "whole number. You gave 1.5"),
        ({"every": None, "at": datetime(2099, 1, 1)}, "at", "has no time zone; give an aware instant"),
        ({"every": None, "at": datetime(2020, 1, 1, tzinfo=UTC)}, "at", "never fires"),
        ({"start_at": "2099-01-01"}, "start_at", "'2099-01-01'; give an aware datetime"),
        ({"time_zone": "Europe/Berlim"}, "time_zone", "Did you mean|did you mean Europe/Berlin"),
        ({"jitter_seconds": 60}, "jitter_seconds", "60 s"),
        ({"strategy": "etcd"}, "strategy", '"etcd" is not known here. Known: .*redis'),
        ({"lock_name": "No Spaces"}, "lock_name", "No Spaces"),
        ({"overlap": "queue_two"}, "overlap", "queue_two.*queue_one"),
        ({"priority": 10}, "priority", "0 to 9; you gave 10"),
        ({"task": limited, "strategy": "optimistic", "ttl": 30}, "ttl", "300"),
        ({"kwargs": {"password": "s3cret", "deep": DEEP}}, "kwargs", "more than 100 deep"),
        ({"name": "a\0b"}, "name", "a text without NUL"),
        ({"name": "a\ud800"}, "name", "half a surrogate pair"),
        ({"name": None}, "name", "You gave None; give a text"),
        ({"lock_name": "a\0b"}, "lock_name", "a text without NUL"),
        ({"task": [TASK]}, "task", "You gave .*; give a text"),
        ({"enabled": None}, "enabled", "You gave None; give True or False"),
        ({"once_per_tick": "no"}, "once_per_tick", "You gave 'no'; give True or False"),
        ({"jiter_seconds": 5}, "jiter_seconds", "no field 'jiter_seconds'. Did you mean jitter_seconds"),
        ({"cron_expression": "* * * * *"}, "cron_expression", "Did you mean|Known: "),
    ],
)  # fmt: skip
def test_what_the_form_refuses_is_refused_by_argument(said: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told) as refused:
        declare(**{"name": "report", "task": TASK, "every": 60, **said})
    assert list(refused.value.message_dict) == [field]
    assert "s3cret" not in str(refused.value)
    assert not Schedule.objects.exists() and not LockName.objects.exists() and not ScheduleChange.objects.exists()


def test_a_task_that_is_not_declared_any_more_is_not_declared_again() -> None:
    schedule = make_schedule("report")
    store(schedule, task="gone.task")
    with pytest.raises(ValidationError, match=r'"gone\.task" is not known'):
        declare("report", task="gone.task", every=60)


def test_without_a_lock_name_it_is_the_one_that_the_task_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive_tasks()[TASK], "exclusive_lock_name", "digests")
    assert declare("north", task=TASK, every=60).lock_id == "digests"
    assert declare("north", task=TASK, every=60).lock_id == "digests"
    with pytest.raises(ValidationError, match='that of schedule "north"'):
        declare("south", task=TASK, every=60)
    assert declare("south", task=TASK, every=60, lock_name="south").lock_id == "south"


def test_a_running_body_keeps_its_lock_name_and_its_strategy() -> None:
    declare("report", task=TASK, every=60, lock_name="a", strategy="database")
    mint()
    schedule = Schedule.objects.select_related("lock").get()
    make_tick(schedule, state="dispatched")
    with pytest.raises(ValidationError, match="a run under another name would not wait") as refused:
        declare("report", task=TASK, every=60, lock_name="b")
    assert list(refused.value.message_dict) == ["lock_name"]
    assert declare("report", task=TASK, every=60, strategy="redis").lock.alias_wanted == "redis"
    mint()
    assert LockName.objects.get(name="a").alias_in_force == "database"


def test_a_lock_name_is_not_changed_beside_a_beat_that_stores_a_tick() -> None:
    """The beat has the schedule and its name; the call waits for it, and sees the tick that it stored."""
    store(declare("report", task=TASK, every=60, lock_name="a"), next_fire_at=database_now())
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert mint().ticks
            declaring = pool.submit(in_thread, "report", task=TASK, every=60, lock_name="b")
            wait_until(waiting, message="the call waits for the beat")
        with pytest.raises(ValidationError, match="its tick of"):
            declaring.result(30)
    assert Schedule.objects.get().lock_id == "a"


def test_a_strategy_that_is_changed_meanwhile_is_not_undone_by_a_new_schedule_of_the_name() -> None:
    make_schedule("other", alias="database", lock_name="shared")
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            retarget("other", "redis", why="", who="ada")
            declaring = pool.submit(in_thread, "report", task=TASK, every=60, lock_name="shared")
            wait_until(waiting, message="the call waits for the operator")
        declaring.result(30)
    assert LockName.objects.get(name="shared").alias_wanted == "redis"


def in_thread(name: str, **said: Any) -> None:
    with closing(connection):
        declare(name, **said)


CALL = f"from scheduler import declare; declare('report', task={TASK!r}, every=60, lock_name='reports')"


def test_two_processes_at_once_end_with_one_schedule(celery_processes: CeleryProcesses) -> None:
    """Both have looked and found none: they wait for the lock name, which a third one is about to make."""
    with transaction.atomic():
        LockName.objects.create(name="reports", alias_wanted="database")
        both = [celery_processes.python(f"p{n}", "manage.py", "shell", "-c", CALL) for n in (1, 2)]
        wait_until(lambda: waiting() == 2, timeout=60, message="both wait for the lock name")
        transaction.set_rollback(True)
    for process in both:
        assert process.wait(60) == 0, process.log.read_text()
    assert Schedule.objects.get().lock_id == "reports"
    assert ScheduleChange.objects.count() == 1


def waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        count: int = cursor.fetchone()[0]
    return count


def test_an_unknown_task_is_told_beside_its_schedule(client: Client) -> None:
    known, gone = make_schedule("known"), make_schedule("gone")
    store(gone, task="gone.task")
    gone.refresh_from_db()
    assert notes(known, database_now(), declared_names()) == []
    (told,) = notes(gone, database_now(), declared_names())
    assert told.startswith("Unknown task gone.task: no module here declares it")
    client.force_login(User.objects.create_superuser("boss"))
    page = client.get(reverse("admin:aegis_scheduler_schedule_changelist")).content.decode()
    assert page.count("Unknown task") == 1
