"""Guarded commits on every strategy: what a former holder writes lands before its successor's start, or never."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection, connections, transaction

from aegis_site.demo.models import Effect
from aegis_site.demo.tasks import DatabaseClock
from locks import LeaseLost, StaleToken
from locks import connection as own_connection
from locks.models import FenceRecord
from locks.testing import TcpProxy
from scheduler.context import RunContext
from scheduler.failpoints import hooked
from scheduler.loss import OnLost
from scheduler.models import Execution, Tick
from scheduler.runner import Outcome, run
from scheduler.states import ExecutionState
from tests.contract.wires import database_address
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.loss import (
    EXCLUSIVE,
    in_a_thread,
    lock_waiters,
    lose_lease,
    overtake,
    start_later,
    take_lease_away,
)
from tests.support.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)


def write(context: RunContext, subject: str = "effect") -> None:
    Effect.objects.create(
        kind=Effect.Kind.DIGEST, schedule=context.schedule, subject=subject, resource=context.lock_name,
        worker=context.worker, entered_at=DatabaseClock(),
    )  # fmt: skip


def subjects() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("subject", flat=True))


def row(outcome: Outcome) -> Execution:
    return Execution.objects.select_related("tick").get(pk=outcome.execution.id)


@pytest.mark.parametrize("alias", EXCLUSIVE)
def test_a_holder_commits(alias: str) -> None:
    def body(context: RunContext) -> None:
        for step in ("one", "two"):
            with context.commit_guard():
                write(context, step)

    outcome = run(delivery_of(make_tick(make_schedule(alias=alias))), body)
    assert outcome.state is ExecutionState.EXECUTED
    assert subjects() == ["one", "two"]


@pytest.mark.parametrize("alias", EXCLUSIVE)
def test_a_former_holder_writes_nothing(alias: str) -> None:
    schedule = make_schedule(alias=alias)
    entered: list[int] = []

    def body(context: RunContext) -> None:
        overtake(schedule)
        with context.commit_guard():
            entered.append(1)
            write(context)

    outcome = run(delivery_of(make_tick(schedule, seconds_ago=9)), body)
    assert outcome.returned is not None and isinstance(outcome.returned.raised, StaleToken)
    assert outcome.state is ExecutionState.LOST
    assert (entered, subjects()) == ([], [])


@pytest.mark.parametrize("alias", EXCLUSIVE)
def test_a_later_start_waits_for_an_open_guard(alias: str) -> None:
    """So whatever the former holder commits, the later one sees it from its first read on."""
    schedule = make_schedule(alias=alias)
    seen: list[list[str]] = []

    def body(context: RunContext) -> None:
        later = threading.Thread(
            target=in_a_thread, args=(lambda: start_later(schedule, lambda context: seen.append(subjects())),)
        )
        with context.commit_guard():
            write(context, "before the later start")
            take_lease_away(alias, schedule.lock_id)
            later.start()
            wait_until(lambda: lock_waiters() > 0, message="the later start waits for the guard")
            assert not seen
        later.join(timeout=60)

    run(delivery_of(make_tick(schedule, seconds_ago=9)), body)
    assert seen == [["before the later start"]]


@pytest.mark.parametrize("alias", EXCLUSIVE)
def test_an_error_rolls_the_guard_back(alias: str) -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard():
            write(context)
            raise ValueError("no such region")

    outcome = run(delivery_of(make_tick(make_schedule(alias=alias))), body)
    assert (outcome.state, subjects()) == (ExecutionState.FAILED, [])


def test_the_baseline_has_no_fence_and_says_so() -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard():
            write(context)

    outcome = run(delivery_of(make_tick(make_schedule(alias="none"))), body)
    assert outcome.returned is not None and isinstance(outcome.returned.raised, ImproperlyConfigured)
    assert "has no fence" in row(outcome).error and "Choose another strategy" in row(outcome).error


def test_the_lease_id_is_proven_as_well() -> None:
    """One number may have been given to two holders, by a store that forgot; their leases differ."""
    schedule = make_schedule()

    def body(context: RunContext) -> None:
        FenceRecord.objects.filter(name=context.lock_name).update(lease_id="12345678-1234-4234-8234-123456789abc")
        with context.commit_guard():
            write(context)

    assert run(delivery_of(make_tick(schedule)), body).state is ExecutionState.LOST
    assert subjects() == []


def test_another_transaction_around_it_is_refused_with_the_remedy() -> None:
    told: list[str] = []

    def body(context: RunContext) -> None:
        with transaction.atomic(), pytest.raises(RuntimeError) as refusal, context.commit_guard():
            pytest.fail("entered")
        told.append(str(refusal.value))
        with context.commit_guard(), pytest.raises(RuntimeError) as refusal, context.commit_guard():
            pytest.fail("entered twice")
        told.append(str(refusal.value))
        connection.set_autocommit(False)
        with pytest.raises(RuntimeError) as refusal, context.commit_guard():
            pytest.fail("entered without autocommit")
        told.append(str(refusal.value))
        connection.set_autocommit(True)

    assert run(delivery_of(make_tick(make_schedule())), body).state is ExecutionState.EXECUTED
    assert "ATOMIC_REQUESTS use transaction.non_atomic_requests" in told[0] and "another guard" in told[1]
    assert "autocommit is off" in told[2]


def test_a_session_that_sits_idle_in_a_guard_is_bounded_by_the_ttl() -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard(), connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            within.append(cursor.fetchone()[0])
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            after.append(cursor.fetchone()[0])

    within: list[str] = []
    after: list[str] = []
    run(delivery_of(make_tick(make_schedule(ttl=2.0))), body)
    assert (within, after) == (["1800ms"], ["0"])


def test_a_holder_that_sits_idle_in_a_guard_does_not_keep_its_successor_waiting() -> None:
    schedule = make_schedule(ttl=1.0)
    later: list[ExecutionState] = []

    def body(context: RunContext) -> None:
        with context.commit_guard():
            write(context)
            later.append(overtake(schedule).state)

    outcome = run(delivery_of(make_tick(schedule, seconds_ago=9)), body)
    connections.close_all()
    assert outcome.state is ExecutionState.LOST and subjects() == []
    assert later == [ExecutionState.EXECUTED]


def test_another_isolation_level_is_refused() -> None:
    def body(context: RunContext) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with context.commit_guard():
            write(context)

    outcome = run(delivery_of(make_tick(make_schedule())), body)
    connections.close_all()
    assert "REPEATABLE READ" in row(outcome).error and subjects() == []


# finish=True


@pytest.mark.parametrize("alias", EXCLUSIVE)
def test_effects_and_outcome_share_one_fate(alias: str) -> None:
    def body(context: RunContext) -> str:
        with context.commit_guard(finish=True):
            write(context)
            assert Execution.objects.get(pk=context.execution_id).state == ExecutionState.RUNNING
        states.append(Execution.objects.get(pk=context.execution_id).state)
        return "done"

    states: list[str] = []
    outcome = run(delivery_of(make_tick(make_schedule(alias=alias))), body)
    executed = row(outcome)
    assert states == ["executed"] and subjects() == ["effect"]
    assert outcome.state is ExecutionState.EXECUTED and outcome.returned is not None
    assert outcome.returned.value == "done"
    assert (executed.tick.state, executed.tick.outcome) == ("closed", "executed")
    assert executed.ran is not None and executed.ran > 0


def test_a_crash_after_the_commit_repeats_nothing() -> None:
    tick = make_tick(make_schedule(max_attempts=3))

    def body(context: RunContext) -> None:
        with context.commit_guard(finish=True):
            write(context)

    def crash() -> None:
        raise SystemExit("gone between commit and finish")

    with hooked("after-body", crash), pytest.raises(SystemExit):
        run(delivery_of(tick), body)
    assert Tick.objects.get(pk=tick.pk).outcome == "executed"
    assert run(delivery_of(tick), body).state is ExecutionState.DUPLICATE
    assert subjects() == ["effect"]


def test_an_error_before_the_commit_leaves_the_run_open_and_fails_it() -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard(finish=True):
            write(context)
            raise ValueError("no such region")

    outcome = run(delivery_of(make_tick(make_schedule())), body)
    assert (outcome.state, subjects()) == (ExecutionState.FAILED, [])
    assert row(outcome).tick.outcome == "failed"


def test_a_run_that_somebody_else_has_ended_commits_nothing() -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard(finish=True):
            write(context)
            own_connection.execute(
                "UPDATE aegis_scheduler_execution SET state = 'abandoned', ended_at = clock_timestamp()"
                " WHERE id = %(id)s", {"id": context.execution_id},
            )  # fmt: skip

    outcome = run(delivery_of(make_tick(make_schedule())), body)
    assert outcome.state is ExecutionState.LOST and subjects() == []
    assert outcome.returned is not None and isinstance(outcome.returned.raised, LeaseLost)
    assert "rolled back" in str(outcome.returned.raised)
    abandoned = row(outcome)
    assert (abandoned.state, abandoned.returned_as) == ("abandoned", "lost")


def test_what_a_body_does_after_its_end_was_recorded_changes_nothing() -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard(finish=True):
            write(context)
        with pytest.raises(RuntimeError, match="the last one"), context.commit_guard():
            pytest.fail("entered")
        raise ValueError("too late")

    outcome = run(delivery_of(make_tick(make_schedule())), body)
    assert outcome.state is ExecutionState.EXECUTED and row(outcome).state == "executed"
    assert outcome.returned is not None and isinstance(outcome.returned.raised, ValueError)


def test_the_end_of_a_run_cannot_be_recorded_in_another_database() -> None:
    def body(context: RunContext) -> None:
        with context.commit_guard(using="ledger", finish=True):
            pytest.fail("entered")

    outcome = run(delivery_of(make_tick(make_schedule())), body)
    assert "finish=True" in row(outcome).error and "'default'" in row(outcome).error


# a commit that is slow, and a lease that is lost meanwhile


@pytest.fixture
def slow_commit() -> Iterator[psycopg.Connection]:
    """A table whose rows make their COMMIT wait until this session has unlocked all."""
    with psycopg.connect(database_url(), autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(hashtext('slow commit'))")
        with _slow_table():
            yield gate


@contextmanager
def _slow_table() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE slow_commit (id int);"
            "CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '60s' AS"
            " $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('slow commit')); RETURN NULL; END $$;"
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow_commit DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION slow_commit()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE slow_commit; DROP FUNCTION slow_commit()")


@pytest.mark.parametrize("finish", [False, True])
def test_a_loss_during_commit_is_told_after_it_and_not_as_undone(
    finish: bool, slow_commit: psycopg.Connection
) -> None:
    lost_while_committing: list[bool] = []

    def body(context: RunContext) -> None:
        with context.commit_guard(finish=finish):
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO slow_commit VALUES (1)")
            write(context)
            lose_lease(context)
            threading.Thread(target=watch, args=(context,)).start()
        lost_while_committing.append(False)  # not reached when the loss is raised

    def watch(context: RunContext) -> None:
        try:
            wait_until(lambda: context.lost, message="keep-alive has noticed")
            lost_while_committing.append(not Effect.objects.exists())
        finally:
            slow_commit.execute("SELECT pg_advisory_unlock_all()")
            connections.close_all()

    outcome = run(delivery_of(make_tick(make_schedule(ttl=30.0))), body, OnLost.INTERRUPT)
    assert lost_while_committing[0] is True
    assert subjects() == ["effect"]
    assert outcome.returned is not None
    if finish:
        assert (outcome.state, outcome.returned.raised) == (ExecutionState.EXECUTED, None)
        assert lost_while_committing == [True, False]
    else:
        assert outcome.state is ExecutionState.LOST
        assert "1 guarded transactions of this run are committed" in str(outcome.returned.raised)
        assert row(outcome).reason == "the lease ended before the body did; 1 guarded commits stand"
        assert lost_while_committing == [True]


@pytest.mark.usefixtures("slow_commit")
def test_a_commit_that_the_server_gave_up_is_failed() -> None:
    """The connection ends in the middle of COMMIT: the ledger, and not the error, says what came of it."""

    def body(context: RunContext) -> None:
        with context.commit_guard(finish=True):
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO slow_commit VALUES (1)")
                cursor.execute("SELECT pg_backend_pid()")
                pid = cursor.fetchone()[0]
            write(context)
            threading.Thread(target=end_session, args=(pid,)).start()

    def end_session(pid: int) -> None:
        wait_until(lambda: "COMMIT" in query_of(pid), message="the commit is under way")
        own_connection.execute("SELECT pg_terminate_backend(%(pid)s)", {"pid": pid})
        own_connection.close_all()

    outcome = run(delivery_of(make_tick(make_schedule())), body)
    connections.close_all()
    assert (outcome.state, subjects()) == (ExecutionState.FAILED, [])


def query_of(pid: int) -> str:
    rows = own_connection.execute("SELECT query FROM pg_stat_activity WHERE pid = %(pid)s", {"pid": pid})
    return str(rows[0][0]) if rows else ""


@pytest.fixture
def wire() -> Iterator[TcpProxy]:
    """Django's connection goes over a wire; the ledger's own, opened before, does not."""
    entry = connections["default"].settings_dict
    address = {"HOST": entry["HOST"], "PORT": entry["PORT"]}
    own_connection.execute("SELECT 1")
    with TcpProxy(database_address()) as proxy:
        connections["default"].close()
        entry.update(HOST="127.0.0.1", PORT=proxy.port)
        try:
            connections["default"].ensure_connection()
        finally:
            entry.update(address)
        yield proxy
        connections["default"].close()


def test_a_commit_whose_answer_was_lost_is_executed(wire: TcpProxy, slow_commit: psycopg.Connection) -> None:
    """COMMIT was done and its answer swallowed: the body sees an error, the ledger has the truth."""
    tick = make_tick(make_schedule(max_attempts=3))

    def body(context: RunContext) -> None:
        with context.commit_guard(finish=True):
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO slow_commit VALUES (1)")
                cursor.execute("SELECT pg_backend_pid()")
                pid = cursor.fetchone()[0]
            write(context)
            threading.Thread(target=lose_the_answer, args=(pid,)).start()

    def lose_the_answer(pid: int) -> None:
        committed = "SELECT 1 FROM aegis_scheduler_tick WHERE id = %(id)s AND outcome = 'executed'"
        wait_until(lambda: "COMMIT" in query_of(pid), message="the commit is under way")
        wire.swallow_answers()
        slow_commit.execute("SELECT pg_advisory_unlock_all()")
        wait_until(lambda: own_connection.execute(committed, {"id": tick.pk}), message="it is committed")
        wire.cut()

    outcome = run(delivery_of(tick), body)
    connections["default"].close()
    assert outcome.state is ExecutionState.EXECUTED
    assert outcome.returned is not None and isinstance(outcome.returned.raised, DatabaseError)
    assert subjects() == ["effect"]


def test_losing_a_lease_of_the_bodys_own_is_a_failure_and_not_the_runs_loss() -> None:
    def body(context: RunContext) -> None:
        raise StaleToken("another one", name="some.other.lock")

    assert run(delivery_of(make_tick(make_schedule())), body).state is ExecutionState.FAILED
