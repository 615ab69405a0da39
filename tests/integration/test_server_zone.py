"""A server whose time zone is not UTC: every instant that our own connections read is the one that was stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections

from locks import lock_backends
from locks.connection import connect, execute
from scheduler import RunContext, exclusive_task
from scheduler.models import Execution, Tick
from scheduler.reaper import Reaper
from scheduler.runner import run
from tests.integration.test_ticker import Clock, dead_execution, passes
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick
from tests.support.server_zone import server_in_zone

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
IN_SQL = "SELECT timestamptz '2026-07-01 12:00:00+00'"
GIVEN = "SELECT %(when)s::timestamptz"


@pytest.fixture(autouse=True, params=["Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with server_in_zone(request.param):
        yield request.param


@exclusive_task(lock="database", lock_name="tests.zone")
def say_when(context: RunContext) -> datetime:
    return context.scheduled_for


def test_the_sessions_are_in_that_zone(zone: str) -> None:
    assert execute("SHOW timezone") == [(zone,)]


def test_an_instant_is_read_as_the_same_instant_in_utc() -> None:
    for _ in range(8):  # from the sixth time on the statement is prepared
        found = execute(GIVEN, {"when": NOON})[0][0]
        assert found == NOON and found.utcoffset() == timedelta(0)
    assert execute(IN_SQL) == [(NOON,)]
    with connect("default") as ours:
        assert ours.run_together(IN_SQL, {}, timeout=5) == [[(NOON,)]]


@pytest.mark.parametrize("binary", [False, True])
def test_an_instant_is_right_in_both_formats(binary: bool) -> None:
    with connect("default") as ours, ours.cursor(binary=binary) as cursor:
        assert cursor.execute(IN_SQL).fetchone() == (NOON,)


def test_djangos_own_connection_reads_as_before() -> None:
    connect("default").close()
    with connections["default"].cursor() as cursor:
        cursor.execute(IN_SQL)
        assert cursor.fetchone() == (NOON,)


@pytest.mark.parametrize("alias", ["database", "optimistic", "advisory", "row_lock"])
def test_a_held_name_shows_when_it_was_acquired(alias: str) -> None:
    backend, name = lock_backends[alias], "tests.zone.held"
    lease = backend.acquire(name)
    assert lease is not None
    shown = backend.inspect(name)
    backend.release(lease)
    assert shown is not None and shown.acquired_at is not None
    assert abs(shown.acquired_at - database_now()) < timedelta(minutes=1)


@pytest.mark.parametrize("alias", ["none", "database", "redis"])
def test_a_silent_execution_whose_lease_is_gone_is_abandoned(alias: str) -> None:
    execution, clock = dead_execution(alias), Clock()
    assert passes(Reaper(clock), clock, 9) == 1
    execution.refresh_from_db()
    assert execution.state == "abandoned"


def test_a_call_is_told_its_fire_time() -> None:
    assert say_when() == Tick.objects.get().fire_time
    assert abs(Tick.objects.get().fire_time - database_now()) < timedelta(minutes=1)


def test_a_run_is_told_when_it_started() -> None:
    outcome = run(delivery_of(make_tick(make_schedule())), lambda context: None)
    assert outcome.execution.started_at == Execution.objects.get().started_at
