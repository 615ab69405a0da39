from __future__ import annotations

import contextlib
import os
import resource
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from locks import connection, pooling
from locks.testing import exit_status, fork_child, wait_until
from tests.contract.pooler import TransactionPooler
from tests.contract.wires import WIRED, database_address, database_behind, wired_database

pytestmark = pytest.mark.django_db

BACKEND_PID = "SELECT pg_backend_pid()"


@pytest.fixture(autouse=True)
def fresh_connections() -> Iterator[None]:
    connection.close_all()
    yield
    connection.close_all()


def backend_pid() -> int:
    pid: int = connection.execute(BACKEND_PID)[0][0]
    return pid


def terminate(pid: int) -> None:
    with psycopg.connect(**raw_params()) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
    wait_until(lambda: not alive(pid))


def alive(pid: int) -> bool:
    with psycopg.connect(**raw_params()) as other:
        return bool(other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).fetchall())


def raw_params() -> dict[str, Any]:
    params = connections["default"].get_connection_params()
    params.pop("cursor_factory")
    return params


def test_rows_and_no_rows() -> None:
    assert connection.execute("SELECT %(a)s::int, 'b'", {"a": 1}) == [(1, "b")]
    assert connection.execute("SELECT 1 WHERE false") == []
    assert connection.execute("SET application_name = 'aegis'") == []


def test_one_connection_per_thread_on_the_test_database() -> None:
    assert backend_pid() == backend_pid()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(backend_pid).result() != backend_pid()
    name = connections["default"].settings_dict["NAME"]
    assert connection.execute("SELECT current_database()") == [(name,)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("application_name", "aegis"),
        ("lock_timeout", "1s"),
        ("statement_timeout", "3s"),
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
    ],
)
def test_the_session_is_set_up(setting: str, value: str) -> None:
    assert connection.execute(f"SHOW {setting}") == [(value,)]


def test_options_of_the_database_are_honoured() -> None:
    with wired_database():
        connections.settings[WIRED]["OPTIONS"] = {"options": "-c work_mem=5MB", "application_name": "mine"}
        assert connection.execute("SHOW work_mem", using=WIRED) == [("5MB",)]
        assert connection.execute("SHOW lock_timeout", using=WIRED) == [("1s",)]
        assert connection.execute("SHOW application_name", using=WIRED) == [("mine",)]


def test_each_statement_is_committed_at_once() -> None:
    name = f"t.{uuid.uuid4().hex}"
    connection.execute("INSERT INTO aegis_locks_fence (name) VALUES (%(name)s)", {"name": name})
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(
            connection.execute, "SELECT 1 FROM aegis_locks_fence WHERE name = %(name)s", {"name": name}
        )
        assert seen.result() == [(1,)]


def test_an_error_of_the_server_leaves_the_connection_usable() -> None:
    pid = backend_pid()
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1 / 0")
    assert backend_pid() == pid


def test_a_warning_of_the_server_is_no_success() -> None:
    """PostgreSQL only warns when it gave up waiting for a synchronous standby."""
    with pytest.raises(connection.NotReplicated, match="canceling wait"):
        connection.execute("DO $$ BEGIN RAISE WARNING 'canceling wait'; END $$")
    assert connection.execute("DO $$ BEGIN RAISE NOTICE 'by the way'; END $$") == []


def test_a_session_ended_while_idle_is_replaced_unnoticed() -> None:
    """After a restart of the database the first statement simply goes to a new connection."""
    pid = backend_pid()
    terminate(pid)
    assert backend_pid() != pid


def test_a_session_ended_during_a_statement_raises_and_the_next_call_reconnects() -> None:
    pid = backend_pid()
    thread = Thread(target=lambda: (wait_until(lambda: waits_in_sleep(pid)), terminate(pid)))
    thread.start()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT pg_sleep(2.5)")
    thread.join()
    assert backend_pid() != pid


def waits_in_sleep(pid: int) -> bool:
    with psycopg.connect(**raw_params()) as other:
        found = other.execute(
            "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'", [pid]
        ).fetchall()
        return bool(found)


def test_waiting_for_an_answer_is_bounded_by_the_client() -> None:
    pid = backend_pid()
    with pytest.raises(connection.NoAnswer):
        connection.execute("SELECT pg_sleep(2.5)", timeout=0.1)
    assert backend_pid() != pid


def test_a_dead_wire_is_bounded_by_the_client() -> None:
    with wired_database() as proxy:
        connection.execute("SELECT 1", using=WIRED)
        proxy.swallow_answers()
        with pytest.raises(connection.NoAnswer):
            connection.execute("SELECT 1", using=WIRED, timeout=0.1)


def test_an_exception_from_a_signal_handler_leaves_the_next_call_working() -> None:
    """What the interrupt of a lost lease does to whatever statement is under way."""

    class InterruptionError(Exception):
        pass

    def interrupt(*args: object) -> None:
        raise InterruptionError

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptionError):
            connection.execute("SELECT pg_sleep(2.5)")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert connection.execute("SELECT 1") == [(1,)]


def test_a_forked_child_connects_anew_and_leaves_its_parents_session_alone() -> None:
    mine = backend_pid()
    reading, writing = os.pipe()

    def ask() -> None:
        os.write(writing, str(backend_pid()).encode())
        connection.close_all()

    assert exit_status(fork_child(ask)) == 0
    assert int(os.read(reading, 20)) != mine
    assert backend_pid() == mine
    os.close(reading)
    os.close(writing)


def test_the_connection_of_a_thread_ends_with_it() -> None:
    pids: list[int] = []
    thread = Thread(target=lambda: pids.append(backend_pid()))
    thread.start()
    thread.join()
    wait_until(lambda: not alive(pids[0]), what="the ended thread's session is gone")


def test_close_all_reaches_other_threads() -> None:
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(backend_pid).result()
        connection.close_all()
        wait_until(lambda: not alive(theirs))
        assert pool.submit(backend_pid).result() != theirs


# prepared statements

PREPARED = "SELECT count(*) FROM pg_prepared_statements"
ECHO = "SELECT %(a)s::int, %(b)s::text, %(c)s::uuid, '100%%'"


def prepared() -> int:
    count: int = connection.execute(PREPARED)[0][0]
    return count


def test_a_statement_that_comes_again_is_prepared_and_answers_the_same() -> None:
    for number in range(20):
        values = {"a": number * 10_000_000, "b": f"it's {number}", "c": uuid.uuid4()}
        assert connection.execute(ECHO, values) == [(values["a"], values["b"], values["c"], "100%")]
    assert prepared() == 1
    for values in ({"a": None, "b": None, "c": None}, {"a": 1, "b": "\\ %s", "c": None}):
        assert connection.execute(ECHO, values) == [(values["a"], values["b"], None, "100%")]


def test_an_error_in_a_prepared_statement_is_raised_and_leaves_it_usable() -> None:
    divide = "SELECT 10 / %(by)s::int"
    for _ in range(10):
        assert connection.execute(divide, {"by": 5}) == [(2,)]
    pid = backend_pid()
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute(divide, {"by": 0})
    assert connection.execute(divide, {"by": 2}) == [(5,)]
    assert (backend_pid(), prepared()) == (pid, 1)


def test_a_warning_of_a_prepared_statement_is_no_success() -> None:
    unlock = "SELECT pg_advisory_unlock(%(key)s)"
    for _ in range(10):
        with pytest.raises(connection.NotReplicated):
            connection.execute(unlock, {"key": 2**40})


def test_a_dead_wire_is_bounded_under_a_prepared_statement() -> None:
    with wired_database() as proxy:
        for _ in range(10):
            connection.execute(ECHO, {"a": 1, "b": "", "c": None}, using=WIRED)
        proxy.swallow_answers()
        with pytest.raises(connection.NoAnswer):
            connection.execute(ECHO, {"a": 1, "b": "", "c": None}, using=WIRED, timeout=0.1)


@pytest.mark.parametrize("honest", [False, True], ids=["own-number", "servers-number"])
def test_nothing_is_prepared_behind_a_pooler(honest: bool) -> None:
    with TransactionPooler(database_address(), honest=honest) as pooler, database_behind(pooler.port):
        for number in range(20):
            assert connection.execute("SELECT %(a)s::int", {"a": number}, using=WIRED) == [(number,)]
        assert connection.execute(PREPARED, using=WIRED) == [(0,)]


@pytest.mark.parametrize(("setting", "count"), [(None, 0), (5, 1)])
def test_the_databases_options_decide_about_preparing(setting: int | None, count: int) -> None:
    with wired_database():
        connections.settings[WIRED]["OPTIONS"] = {"prepare_threshold": setting}
        for number in range(20):
            connection.execute("SELECT %(a)s::int", {"a": number}, using=WIRED)
        assert connection.execute(PREPARED, using=WIRED) == [(count,)]


def test_statements_that_vanished_are_an_error_once_and_prepared_no_more() -> None:
    """What a pooler does that was not seen: the session is another one."""
    with wired_database():
        for _ in range(10):
            connection.execute("SELECT %(a)s::int", {"a": 1}, using=WIRED)
        connection.execute("DEALLOCATE ALL", using=WIRED)
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            connection.execute("SELECT %(a)s::int", {"a": 1}, using=WIRED)
        for _ in range(10):
            assert connection.execute("SELECT %(a)s::int", {"a": 1}, using=WIRED) == [(1,)]
        assert connection.execute(PREPARED, using=WIRED) == [(0,)]
    pooling._refuted.discard(WIRED)


def test_a_migration_under_a_prepared_statement_is_an_error_once() -> None:
    table = f"t_{uuid.uuid4().hex}"
    connection.execute(f"CREATE TABLE {table} (a int)")
    try:
        for _ in range(10):
            connection.execute(f"SELECT a FROM {table} WHERE a > %(a)s::int", {"a": 1})
        connection.execute(f"ALTER TABLE {table} ALTER a TYPE text")
        connection.execute(f"ALTER TABLE {table} ALTER a TYPE bigint USING a::bigint")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute(f"SELECT a FROM {table} WHERE a > %(a)s::int", {"a": 1})
        for _ in range(10):
            assert connection.execute(f"SELECT a FROM {table} WHERE a > %(a)s::int", {"a": 1}) == []
        assert prepared() == 1
    finally:
        connection.execute(f"DROP TABLE {table}")


def test_another_database_engine_is_refused() -> None:
    connections.settings["lite"] = {
        **connections["default"].settings_dict,
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
    }
    try:
        with pytest.raises(ImproperlyConfigured, match="need PostgreSQL"):
            connection.execute("SELECT 1", using="lite")
    finally:
        del connections.settings["lite"]
        del connections["lite"]


def test_routed_statements_run_in_the_tests_own_transaction() -> None:
    with connection.routed_to_django():
        assert connection.is_routed()
        with connections["default"].cursor() as cursor:
            cursor.execute(BACKEND_PID)
            assert connection.execute(BACKEND_PID) == [cursor.fetchone()]
    assert not connection.is_routed()


def test_an_error_in_a_routed_statement_does_not_end_the_tests_transaction() -> None:
    with connection.routed_to_django():
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        assert connection.execute("SELECT 1") == [(1,)]


def test_routing_is_for_one_thread() -> None:
    with (
        connection.routed_to_django(),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(psycopg.OperationalError, match="another thread"),
    ):
        pool.submit(connection.execute, "SELECT 1").result()


def test_a_process_without_file_descriptors_cannot_reach_the_database() -> None:
    """One descriptor is enough for the socket, and leaves none to wait with."""

    def connect() -> None:
        connection.connect("default").close()  # loads what is loaded on first use
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        taken = all_descriptors()
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError):
                connection.connect("default")
            os.close(taken.pop())
        for number in taken:
            os.close(number)
        connection.connect("default").close()

    assert exit_status(fork_child(connect)) == 0


def all_descriptors() -> list[int]:
    """New descriptors, until the system has no more for this process."""
    taken: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken
