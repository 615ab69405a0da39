"""An edit or a deletion that comes while a pass has the schedule in its hands, before it has moved it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from django.db import connections

from locks import connection
from scheduler import minting
from scheduler.models import Schedule, Tick
from scheduler.states import TickState
from scheduler.ticker import Ticker
from tests.integration.test_ticker import due_schedule, empty_queue  # noqa: F401
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%aegis_scheduler_schedule%%'
"""


def somebody_waits() -> bool:
    return connection.execute(WAITING, {}) != [(0,)]


@contextmanager
def begun_inside_a_pass(change: Callable[[], Any], seen: list[bool]) -> Iterator[None]:
    """The first pass begins ``change`` in a thread before it moves the first schedule on, and goes on when the change
    waits (``seen``) or is over. It is over when the block ends."""
    advance, begun = minting._advance, list[Future[Any]]()

    def done() -> None:
        try:
            change()
        finally:
            connections.close_all()

    def begin_and_advance(schedule: Schedule, next_fire_at: datetime | None) -> None:
        if not begun:
            begun.append(pool.submit(done))
            wait_until(lambda: somebody_waits() or begun[0].done(), message="the change waits for the pass")
            seen.append(not begun[0].done())
        advance(schedule, next_fire_at)

    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patched:
        patched.setattr(minting, "_advance", begin_and_advance)
        yield
        begun[0].result(timeout=30)


def test_a_beat_overwrites_no_edit_that_came_while_it_moved_the_schedule_on() -> None:
    schedule, ticker, waited = due_schedule(kwargs={"old": 1}), Ticker(), list[bool]()

    def edit() -> None:
        Schedule.objects.filter(pk=schedule.pk).update(kwargs={"new": 2}, every_seconds=7200, notes="by hand")

    with begun_inside_a_pass(edit, waited):
        ticker.tick()
    for _ in range(2):
        schedule.refresh_from_db()
        assert (schedule.kwargs, schedule.every_seconds, schedule.notes) == ({"new": 2}, 7200, "by hand")
        ticker.tick()
    assert waited == [True]
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None
    assert schedule.next_fire_at.timestamp() % 7200 == 0
    assert Tick.objects.filter(kwargs={"old": 1}).exists() and not Tick.objects.filter(kwargs={"new": 2}).exists()


def test_a_beat_survives_a_deletion_that_came_while_it_moved_the_schedule_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deleted, other = due_schedule("deleted"), due_schedule("other")
    ticker, waited = Ticker(), list[bool]()
    with begun_inside_a_pass(lambda: Schedule.objects.filter(pk=deleted.pk).delete(), waited):
        ticker.tick()
    ticker.tick()
    assert waited == [True]
    assert list(Schedule.objects.all()) == [other]
    theirs = Tick.objects.filter(schedule_name="deleted")
    assert theirs.filter(reason="deleted").exists()
    assert not theirs.exclude(schedule=None, closed_at__isnull=False).exists()
    assert Tick.objects.filter(schedule=other, state=TickState.DISPATCHED).exists()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
