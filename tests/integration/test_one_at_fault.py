"""One at fault harms no other: a message that cannot be made, a lock name that is held, a backend that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import redis
from django.db import connection

from aegis_site.celery import app
from aegis_site.embedded import Services
from locks import InvalidLockBackend, lock_backends
from locks.backends.none import NoLockBackend
from scheduler import ticker as passes
from scheduler.minting import Minted, mint
from scheduler.models import LockName, Schedule, Tick
from scheduler.publisher import Published, publish
from scheduler.states import TickState
from scheduler.switching import switch_idle
from scheduler.ticker import Ticker
from tests.integration.test_ticker import due_schedule
from tests.support.engine import make_schedule, make_tick, store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def neighbours() -> list[Tick]:
    """Ticks of three schedules; the one in the middle is going to be at fault."""
    app.set_current()
    return [make_tick(make_schedule(name, queue="reports" if name == "bad" else "")) for name in ("a", "bad", "z")]


@pytest.fixture
def misrouted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A function in ``task_routes`` that knows nothing of one region."""

    def route(name: str, args: Any, kwargs: Any, options: Any, **more: Any) -> Any:
        return {} if "region" not in kwargs else {}["nowhere"]

    monkeypatch.setitem(app.conf, "task_routes", (route,))
    monkeypatch.setattr(app.amqp, "_rtable", None)
    app.amqp.__dict__.pop("router", None)  # a cached property, made of them
    yield
    app.amqp.__dict__.pop("router", None)


@pytest.fixture
def of_another_type(services: Services) -> Iterator[None]:
    """The key of the queue holds something that is no list."""
    with closing(redis.Redis.from_url(app.conf.broker_url)) as broker:
        broker.delete("reports")
        broker.sadd("reports", "x")
        yield
        broker.delete("reports")


def test_a_queue_of_another_type_stops_no_other(
    of_another_type: None, neighbours: list[Tick], caplog: pytest.LogCaptureFixture
) -> None:
    assert publish(neighbours) == Published([neighbours[0].id, neighbours[2].id])
    assert f"tick {neighbours[1].id} of bad cannot be published" in caplog.text


def test_a_route_that_fails_stops_no_other(misrouted: None, neighbours: list[Tick]) -> None:
    neighbours[1].queue, neighbours[1].kwargs = "", {"region": "nowhere"}
    assert publish(neighbours) == Published([neighbours[0].id, neighbours[2].id])


def test_an_unknown_compression_is_one_messages_fault(neighbours: list[Tick]) -> None:
    neighbours[1].call_options = {"compression": "nosuch"}
    assert publish(neighbours) == Published([neighbours[0].id, neighbours[2].id])


def test_a_broker_that_refuses_everybody_has_failed(neighbours: list[Tick]) -> None:
    with closing(redis.Redis.from_url(app.conf.broker_url)) as broker:
        try:
            broker.replicaof("127.0.0.1", "1")  # type: ignore[no-untyped-call]
            assert publish(neighbours) == Published([], broker_failed=True)
        finally:
            broker.replicaof("NO", "ONE")  # type: ignore[no-untyped-call]


def test_a_name_that_is_held_fills_no_batch(settings: Any) -> None:
    """Two that are the oldest share it, and a batch has room for two."""
    settings.AEGIS = {**settings.AEGIS, "BATCH": 2}
    held = [due_schedule(name=name) for name in ("a", "b")]
    LockName.objects.create(name="shared", alias_wanted="database")
    Schedule.objects.filter(pk__in=[one.pk for one in held]).update(lock="shared")
    for one in held:
        store(one, next_fire_at=one.activated_at)
    free = due_schedule(name="free")
    store(free, next_fire_at=free.activated_at + timedelta(seconds=2))
    with closing(psycopg.connect(**connection.get_connection_params())) as other:
        other.execute("SELECT FROM aegis_scheduler_lockname WHERE name = 'shared' FOR NO KEY UPDATE")
        mint()
        assert {tick.schedule_name for tick in Tick.objects.all()} == {"free"}


def test_what_is_always_due_leaves_room_for_the_rest_of_a_pass(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AEGIS = {**settings.AEGIS, "ON_TIME": 0.1}
    monkeypatch.setattr(passes, "mint", lambda: Minted((), full=True))
    due = Ticker()
    reaped: list[bool] = []
    monkeypatch.setattr(due.reaper, "reap", lambda: reaped.append(True))
    due.tick()
    assert reaped


class Breaking(NoLockBackend):
    """Cannot be made: as where an environment variable is missing."""

    def __init__(self, alias: str, params: Any) -> None:
        raise RuntimeError("redis://:secret@nowhere")


def test_a_backend_that_cannot_be_made_stops_its_own_schedules_only(settings: Any) -> None:
    settings.LOCKS = {**settings.LOCKS, "breaking": {"BACKEND": f"{__name__}.Breaking"}}
    with pytest.raises(InvalidLockBackend, match="making it raises RuntimeError") as refused:
        lock_backends["breaking"]
    assert "secret" not in str(refused.value)
    due_schedule(name="bad", alias="breaking")
    due_schedule(name="good")
    Ticker().tick()
    assert {tick.schedule_name for tick in Tick.objects.exclude(state=TickState.MISFIRED)} == {"good"}
    assert "LOCKS['breaking']" in Schedule.objects.get(name="bad").broken_reason


def test_a_pass_reads_no_lock_name_whatever_their_number() -> None:
    LockName.objects.bulk_create(
        LockName(name=f"n{number}", alias_wanted="database", alias_in_force="database") for number in range(5000)
    )
    LockName.objects.create(name="switching", alias_wanted="redis", alias_in_force="database")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE aegis_scheduler_lockname")
        with connection.execute_wrapper(_explained(plans := [])):
            switch_idle()
    assert LockName.objects.get(name="switching").alias_in_force == "redis"
    assert any("aegis_lockname_switching" in plan for plan in plans), plans


def _explained(plans: list[str]) -> Any:
    """Keep the plan of each SELECT."""

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT") and "FOR NO KEY" not in sql:
            with closing(psycopg.connect(**connection.get_connection_params())) as other:
                rows = other.execute("EXPLAIN " + sql, params).fetchall()
            plans.append("\n".join(str(row[0]) for row in rows))
        return execute(sql, params, many, context)

    return wrapper
