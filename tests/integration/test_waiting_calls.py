"""A call whose lock name is locked in the database, as by a beat that stores ticks: it waits, and is not lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from celery import Celery
from django.db import transaction

from locks.connection import execute
from scheduler import RunContext, exclusive_task, manual, minting
from scheduler.exceptions import LedgerUnavailable
from scheduler.models import LockName, Schedule, Tick
from scheduler.recurrence import Recurrence
from scheduler.states import TickState
from tests.integration.test_celery_in_place import asked, child, tell  # noqa: F401
from tests.integration.test_waiting_starts import in_the_background
from tests.support import wait_until
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "tests.waiting-calls"
WAITING = """
SELECT query_start::text FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%aegis_scheduler_lockname%%'
"""


@exclusive_task(lock="database", lock_name=NAME)
def called(context: RunContext) -> str:
    return "ran"


@pytest.fixture(autouse=True)
def clean_app() -> Celery:
    from aegis_site.celery import app

    app.set_current()
    return app


@contextmanager
def lock_name_held(name: str) -> Iterator[None]:
    """As by a beat that stores ticks under it."""
    with transaction.atomic():
        assert LockName.objects.select_for_update(no_key=True).get(name=name)
        yield


def await_statements(count: int) -> None:
    """Until so many statements have waited for a lock name, one after the other."""
    seen: set[str] = set()

    def enough() -> bool:
        seen.update(row[0] for row in execute(WAITING, {}))
        return len(seen) >= count

    wait_until(enough, timeout=20, message=f"{count} statements have waited")


@pytest.mark.parametrize("in_force", ["database", ""], ids=["known name", "name to be put in force"])
def test_a_call_waits_for_a_beat_that_stores_ticks_under_its_name(in_force: str) -> None:
    LockName.objects.create(name=NAME, alias_wanted="database", alias_in_force=in_force)
    with lock_name_held(NAME):
        thread, answers = in_the_background(called)
        await_statements(2)
    thread.join(30)
    assert answers == ["ran"]


@pytest.mark.usefixtures("child")
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_limit_that_is_met_while_a_call_waits_leaves_nothing_that_runs_later(number: signal.Signals) -> None:
    """It had struck in the middle of the statement, which the server carried out all the same: Celery was told of a
    failure, and a beat sent the tick.
    """
    LockName.objects.create(name=NAME, alias_wanted="database", alias_in_force="database")
    held, told = threading.Event(), threading.Event()

    def hold() -> bool:
        with lock_name_held(NAME):
            held.set()
            await_statements(1)
            tell(number)
            told.set()
            wait_until(lambda: answered.is_set(), timeout=20, message="the call has given up")
        return True

    answered = threading.Event()
    other, _ = in_the_background(hold)
    assert held.wait(30)
    with pytest.raises((LedgerUnavailable, SystemExit)):
        asked(called)
    answered.set()
    other.join(60)
    assert told.is_set() and not Tick.objects.exists()


def test_a_run_by_hand_gives_up_where_the_name_is_not_given_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manual, "LOOKED_AT", 0.0)
    schedule = make_schedule()
    with lock_name_held(schedule.lock_id), pytest.raises(LedgerUnavailable, match="LockNotAvailable"):
        manual.request_run(schedule)  # on a connection of its own
    assert not Tick.objects.exists()


def test_a_pass_that_takes_too_long_leaves_the_rest_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minting, "PASS_BUDGET", 0.0)
    due = database_now() - timedelta(seconds=1)
    for number in range(3):  # due once, however long the passes take
        make_schedule(f"once-{number}", once_at=due)
    Schedule.objects.update(activated_at=due - timedelta(hours=1))
    stored = [minting.mint() for _ in range(3)]
    names = [{tick.schedule_name for tick in one.ticks} for one in stored]
    assert [len(one) for one in names] == [1, 1, 1] and len(set.union(*names)) == 3
    assert [one.full for one in stored] == [True, True, False]


@pytest.mark.parametrize("misfire", ["skip", "fire_once", "fire_all"])
def test_what_was_missed_is_counted_once_in_a_pass(misfire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes milliseconds for a few days of each minute, while the lock name is held."""
    schedule = make_schedule("minutely", cron_expression="* * * * *", misfire=misfire, catch_up_window=3600)
    Schedule.objects.filter(pk=schedule.pk).update(next_fire_at="2026-01-01T00:00Z", activated_at="2026-01-01T00:00Z")
    counted: list[int] = []
    count_in = Recurrence.count_in

    def noted(*given: object, **more: object) -> tuple[int, bool]:
        counted.append(1)
        return count_in(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Recurrence, "count_in", noted)
    minting.mint()
    assert len(counted) == 1
    assert Tick.objects.filter(state=TickState.MISFIRED).exists()
