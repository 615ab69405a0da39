"""Guards where users write: in a view under ATOMIC_REQUESTS, in a ``TestCase``'s transaction, on another database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from aegis_site.demo.models import Effect
from aegis_site.demo.tasks import DatabaseClock
from locks import StaleToken, exclusive, fence, fencing
from locks.testing import leases_in_test_transaction
from scheduler import RunContext, exclusive_task
from scheduler.models import Execution
from scheduler.runner import run
from scheduler.states import ExecutionState
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.loss import overtake
from tests.unit.locks.test_migrations import scratch_database

__all__ = ["leases_in_test_transaction", "scratch_database"]  # fixtures, for the tests below


@exclusive_task(lock="database", lock_name="tests.note", on_lost="kill")
def note(context: RunContext, subject: str, finish: bool = False) -> str:
    with context.commit_guard(finish=finish):
        write(subject)
    return context.once_key("mail")


def write(subject: str) -> None:
    Effect.objects.create(
        kind=Effect.Kind.DIGEST, schedule="", subject=subject, resource="", worker="", entered_at=DatabaseClock()
    )


def setting(name: str) -> str | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s, true)", [name])
        value: str | None = cursor.fetchone()[0]
    return value


@pytest.fixture(autouse=True)
def clean_app() -> None:
    from aegis_site.celery import app

    app.set_current()


# in a TestCase's transaction


@pytest.mark.usefixtures("leases_in_test_transaction")
class TestInATestCase:
    @pytest.mark.parametrize("finish", [False, True])
    def test_guarded_code_is_tested_as_it_is(self, finish: bool) -> None:
        """Also a task that asks to be killed: nothing outside of the test's transaction could be harmed."""
        key = note("tested", finish)
        assert Effect.objects.get().subject == "tested" and key.startswith("aegis-")
        assert Execution.objects.get().state == ExecutionState.EXECUTED

    def test_the_tests_transaction_goes_on_without_the_token_and_without_a_time_limit(self) -> None:
        note("tested")
        assert setting("aegis.token") == "" and setting("idle_in_transaction_session_timeout") == "0"

    def test_plain_code_too(self) -> None:
        with exclusive("tests.plain", using="database") as held, fence(held) as token:
            write("tested")
        assert token == fencing.current("tests.plain") and Effect.objects.count() == 1

    def test_a_guard_inside_a_transaction_of_the_code_is_still_refused(self) -> None:
        with (
            exclusive("tests.plain", using="database") as held,
            transaction.atomic(),
            pytest.raises(RuntimeError, match="cannot be inside"),
            fence(held),
        ):
            pytest.fail("entered")


# in a view


def guarded_view(request: HttpRequest) -> HttpResponse:
    with exclusive("tests.view", using="database") as held, fence(held) as token:
        write("viewed")
    return HttpResponse(str(token))


@transaction.non_atomic_requests
def free_view(request: HttpRequest) -> HttpResponse:
    return guarded_view(request)


@transaction.non_atomic_requests
def view_with_a_transaction(request: HttpRequest) -> HttpResponse:
    with exclusive("tests.view", using="database") as held, transaction.atomic(), fence(held):
        return HttpResponse("never")


urlpatterns = [
    path("atomic", guarded_view),
    path("free", free_view),
    path("around", view_with_a_transaction),
]


@pytest.fixture
def atomic_requests(settings: Any, monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> None:
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize("url", ["/atomic", "/around"])
def test_a_view_in_a_transaction_is_told_what_to_do(url: str) -> None:
    with pytest.raises(RuntimeError, match=r"transaction\.non_atomic_requests"):
        Client().get(url)
    assert not Effect.objects.exists()


@pytest.mark.usefixtures("atomic_requests")
def test_a_view_that_does_it_works() -> None:
    assert int(Client().get("/free").content) == fencing.current("tests.view")
    assert Effect.objects.get().subject == "viewed"


# on another database


@pytest.fixture
def other(transactional_db: None, scratch_database: str) -> Iterator[str]:
    """Another database with the tables of locks and a table to write to."""
    call_command("migrate", "aegis_locks", database=scratch_database, verbosity=0)
    with connections[scratch_database].cursor() as cursor:
        cursor.execute("CREATE TABLE said (what text)")
    yield scratch_database
    from locks import connection as own_connection

    own_connection.close_all(using=scratch_database)


def say(what: str, using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("INSERT INTO said VALUES (%s)", [what])


def said(using: str) -> list[str]:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT what FROM said")
        return [what for (what,) in cursor.fetchall()]


def guarded(using: str, what: str) -> Any:
    def body(context: RunContext) -> int | None:
        for step in (1, 2):
            with context.commit_guard(using=using):
                say(f"{what} {step}", using)
        return context.fencing_token

    return body


def test_a_guard_on_another_database_raises_the_fence_there(other: str) -> None:
    schedule = make_schedule()
    for what in ("first", "second"):
        outcome = run(delivery_of(make_tick(schedule)), guarded(other, what))
        assert outcome.state is ExecutionState.EXECUTED and outcome.returned is not None
        assert fencing.current(schedule.lock_id, using=other) == outcome.returned.value
    assert said(other) == ["first 1", "first 2", "second 1", "second 2"]


def test_plain_code_and_runs_take_turns_there(other: str) -> None:
    """The other database would number for itself, from wherever its own counter stands."""
    with connections[other].cursor() as cursor:
        cursor.execute("SELECT setval('aegis_locks_token', 1000000)")
    schedule = make_schedule()
    for what in ("plain", "again"):
        with exclusive(schedule.lock_id, using="database") as held, fence(held, using=other) as token:
            say(what, other)
        assert token == fencing.current(schedule.lock_id) == fencing.current(schedule.lock_id, using=other)
        outcome = run(delivery_of(make_tick(schedule)), guarded(other, what))
        assert outcome.state is ExecutionState.EXECUTED
    assert said(other) == ["plain", "plain 1", "plain 2", "again", "again 1", "again 2"]


@pytest.mark.parametrize("touched", [True, False])
def test_a_former_holder_writes_nothing_there_after_a_later_one_was_there(other: str, touched: bool) -> None:
    schedule = make_schedule()

    def body(context: RunContext) -> None:
        if touched:
            with context.commit_guard(using=other):
                say("mine", other)
        overtake(schedule, guarded(other, "later"))
        with context.commit_guard(using=other):
            say("stale", other)

    outcome = run(delivery_of(make_tick(schedule, seconds_ago=9)), body)
    assert outcome.returned is not None and isinstance(outcome.returned.raised, StaleToken)
    assert said(other) == (["mine"] if touched else []) + ["later 1", "later 2"]


def test_the_same_number_of_another_lease_is_refused_there(other: str) -> None:
    """A restored copy of the home database may give out a number that the other database knows already."""
    schedule = make_schedule()

    def body(context: RunContext) -> None:
        insert = "INSERT INTO aegis_locks_fence (name, token, lease_id) VALUES (%s, %s, %s)"
        with connections[other].cursor() as cursor:
            cursor.execute(insert, [context.lock_name, context.fencing_token, uuid.uuid4()])
        with context.commit_guard(using=other):
            say("twin", other)

    assert run(delivery_of(make_tick(schedule)), body).state is ExecutionState.LOST
    assert said(other) == []


@pytest.mark.django_db(transaction=True)
def test_a_database_without_the_tables_says_how_to_get_them(scratch_database: str) -> None:
    outcome = run(delivery_of(make_tick(make_schedule())), guarded(scratch_database, "never"))
    assert outcome.returned is not None and isinstance(outcome.returned.raised, ImproperlyConfigured)
    assert f"manage.py migrate aegis_locks --database {scratch_database}" in str(outcome.returned.raised)
    from locks import connection as own_connection

    own_connection.close_all(using=scratch_database)
