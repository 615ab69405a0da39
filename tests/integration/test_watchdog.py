"""Hanging up on a database that does not answer, and on no other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from scheduler.aside import Aside
from scheduler.watchdog import Watchdog
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


SLEEPERS = "FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()"


@pytest.fixture(autouse=True)
def nobody_sleeps_on() -> Iterator[None]:
    """The server goes on with what nobody waits for any more."""
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(pg_terminate_backend(pid)) {SLEEPERS}")
        wait_until(lambda: not found(cursor), message="their sessions ended")


def found(cursor: Any) -> int:
    cursor.execute(f"SELECT count(*) {SLEEPERS}")
    return int(cursor.fetchone()[0])


def ask(seconds: float = 0.0) -> None:
    """Returns nothing, when it was answered."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


def test_a_statement_without_an_answer_is_cut_short() -> None:
    with pytest.raises(OperationalError), Watchdog(0.3).watching():
        ask(60)
    connection.close()


def test_a_pass_that_is_busy_elsewhere_keeps_its_connection() -> None:
    """Such as one that publishes five hundred ticks to a slow broker: it used to publish them twice."""
    watchdog = Watchdog(2.0)
    with watchdog.watching():
        ask()
        (watched,) = watchdog._watched
        began = watched.since
        wait_until(lambda: watched.since > began, message="the watchdog has looked, and patience was over")
        ask()


def test_what_a_beat_does_beside_its_passes_is_cut_short_as_well() -> None:
    """By the watchdog that watches a pass at the same time, whose statements are answered and go on."""
    rounds: list[int] = []
    over = threading.Event()

    def work() -> None:
        rounds.append(len(rounds))
        if len(rounds) > 1:
            over.set()
        else:
            ask(60)

    watchdog = Watchdog(2.0)
    with watchdog.watching():
        aside = Aside("sums", work, lambda: 0.01, watchdog=watchdog)
        aside.start()
        wait_until(lambda: ask(0.1) or over.is_set(), timeout=30, message="the second round came")
        aside.stop()


def test_a_server_that_takes_a_connection_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy does whose database is away, in a project that names no time-out of its own."""
    told: list[str] = []

    def work() -> None:
        with Watchdog(3.0).watching():
            try:
                ask()
            except OperationalError as trouble:
                told.append(str(trouble))

    own = connection.settings_dict
    options = {key: value for key, value in own["OPTIONS"].items() if key != "connect_timeout"}
    with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
        for key, value in (("HOST", "127.0.0.1"), ("PORT", silent.getsockname()[1]), ("OPTIONS", options)):
            patch.setitem(own, key, value)
        threading.Thread(target=work, daemon=True).start()
        wait_until(lambda: told, timeout=30, message="the connection was given up")
    assert "timeout" in told[0]
