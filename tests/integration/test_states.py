"""The tables of ``scheduler.states`` against what the statements do: every move of a row is one that is listed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection

from scheduler.body import RetryLater
from scheduler.context import RunContext
from scheduler.models import Schedule, Tick
from scheduler.reaper import Reaper
from scheduler.runner import run
from scheduler.statements import dispatch
from scheduler.states import EXECUTION_MOVES, TICK_MOVES
from scheduler.ticker import Ticker, _run
from tests.integration.test_runner import in_a_thread
from tests.integration.test_ticker import Clock, dead_execution, passes
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

LOG = """
CREATE TABLE moves (kind text, was text, became text);
CREATE FUNCTION log_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> NEW.state THEN INSERT INTO moves VALUES (TG_TABLE_NAME, OLD.state, NEW.state); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER log_move AFTER UPDATE ON aegis_scheduler_tick FOR EACH ROW EXECUTE FUNCTION log_move();
CREATE TRIGGER log_move AFTER UPDATE ON aegis_scheduler_execution FOR EACH ROW EXECUTE FUNCTION log_move();
"""
UNLOG = "DROP FUNCTION log_move() CASCADE; DROP TABLE moves;"


@pytest.fixture
def logged() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(LOG)
    yield
    with connection.cursor() as cursor:
        cursor.execute(UNLOG)


def moves(table: str) -> set[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT was, became FROM moves WHERE kind = %s", [table])
        return set(cursor.fetchall())


def listed(table: dict) -> set[tuple[str, str]]:  # type: ignore[type-arg]
    return {(was.value, became.value) for was, followers in table.items() for became in followers}


def fail(context: RunContext) -> None:
    raise ValueError("no")


def retry(context: RunContext) -> None:
    raise RetryLater(when=0.0)


def test_every_move_is_listed_and_every_listed_move_of_an_execution_happens(logged: None) -> None:
    schedule = make_schedule("report")
    for body in (lambda context: None, fail, retry):
        run(delivery_of(make_tick(schedule, seconds_ago=Tick.objects.count() + 10)), body)
    overtaken = make_tick(make_schedule("claim", alias="optimistic"))
    run(delivery_of(overtaken), lambda context: _take_the_claim_away())
    clock = Clock()
    dead_execution("none", max_attempts=2)
    passes(Reaper(clock), clock, 9)
    Tick.objects.filter(state="dispatched").update(deadline=database_now() - timedelta(seconds=1))
    make_tick(schedule, seconds_ago=5, deadline=database_now() - timedelta(seconds=1))
    Ticker().tend()
    make_schedule("each-second", every_seconds=1)
    due = Schedule.objects.get(name="each-second")
    make_tick(due, seconds_ago=100)
    Tick.objects.filter(schedule=due).update(dispatch_at=database_now() - timedelta(seconds=1))
    Ticker().tend()
    Schedule.objects.filter(pk=due.pk).update(enabled=False)
    Ticker().tick()

    _queue_one()

    assert moves("aegis_scheduler_execution") == listed(EXECUTION_MOVES)
    seen = moves("aegis_scheduler_tick")
    assert seen <= listed(TICK_MOVES)
    assert {
        ("planned", "dispatched"),
        ("planned", "started"),
        ("started", "closed"),
        ("started", "dispatched"),
    } <= seen
    assert {("planned", "misfired"), ("dispatched", "misfired"), ("dispatched", "closed")} <= seen
    assert {(was, became) for was, became in listed(TICK_MOVES) if "waiting" in (was, became)} <= seen


def _queue_one() -> None:
    """Every move into the queue and out of it."""
    waits: list[Tick] = []
    for number, state in enumerate(("planned", "dispatched", "planned", "planned", "planned")):
        waits.append(make_tick(make_schedule(f"q{number}", overlap="queue_one", lock_name="shared"), state=state))

    def body(context: RunContext) -> None:
        for tick in waits:
            in_a_thread(lambda tick=tick: run(delivery_of(tick), lambda c: None))
        Schedule.objects.filter(name="q2").update(enabled=False)
        Ticker().tick()  # waiting -> misfired
        message = {"tick": waits[3].pk, "attempt": 1, "reason": "revoked"}
        _run(dispatch.REVOKE, message)  # waiting -> closed

    run(delivery_of(make_tick(make_schedule("long", lock_name="shared"))), body)  # its end: waiting -> dispatched
    Tick.objects.filter(pk=waits[4].pk).update(state="waiting")
    run(delivery_of(waits[4]), lambda c: None)  # waiting -> started


def _take_the_claim_away() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE aegis_locks_claim SET version = version + 1000")
