"""A project whose router sends every read to a replica that lags: what operators do reads the primary."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import DEFAULT_DB_ALIAS, connections
from django.test import override_settings
from psycopg import IsolationLevel

from scheduler import healing, pausing, running
from scheduler.alerts import handling
from scheduler.cli._named import named
from scheduler.models import Alert, ScheduleChange
from scheduler.pruning import prune
from scheduler.retargeting import retarget
from scheduler.states import TickState
from tests.support.engine import database_now, make_schedule, make_tick, store

pytestmark = pytest.mark.django_db(transaction=True)

REPLICA = "replica-that-lags"


class ReadsFromReplica:
    def db_for_read(self, model: Any, **hints: Any) -> str:
        return REPLICA

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return DEFAULT_DB_ALIAS

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool:
        return True


@pytest.fixture
def replica() -> Iterator[override_settings]:
    """A connection that sees the database as it stood when the test began; entered, all reads are sent there."""
    entry = connections[DEFAULT_DB_ALIAS].settings_dict
    options = {**entry["OPTIONS"], "isolation_level": IsolationLevel.REPEATABLE_READ}
    connections.settings[REPLICA] = {**entry, "OPTIONS": options}
    connections[REPLICA].connect()
    connections[REPLICA].set_autocommit(False)
    with connections[REPLICA].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM aegis_scheduler_schedule")
    try:
        yield override_settings(DATABASE_ROUTERS=[ReadsFromReplica()])
    finally:
        connections[REPLICA].close()
        del connections.settings[REPLICA]
        del connections[REPLICA]


def test_a_run_that_was_asked_for_is_found(replica: override_settings) -> None:
    make_schedule()
    with replica:
        tick = running.ask("nightly", key="once", who="ana")
        assert running.ask("nightly", key="once", who="ana").pk == tick.pk
        assert tick.schedule is not None and tick.schedule.lock.name == "lock.nightly"
        assert not running.standing(tick).over


def test_the_record_of_a_pause_says_what_was_changed(replica: override_settings) -> None:
    make_schedule()
    with replica:
        pausing.pause("nightly", why="audit", who="ana")
        assert not pausing.resume("nightly", who="ana").is_paused(database_now())
    first, second = ScheduleChange.objects.order_by("pk")
    assert first.after["pause_reason"] == second.before["pause_reason"] == "audit"


def test_another_strategy_is_noted_with_every_schedule_of_the_name(replica: override_settings) -> None:
    for name in ("first", "second"):
        make_schedule(name, lock_name="shared")
    with replica:
        retarget("first", "redis", now=True, who="ana")
    assert ScheduleChange.objects.count() == 2


def test_what_is_old_is_pruned(replica: override_settings) -> None:
    schedule = make_schedule()
    over = {"state": TickState.CLOSED, "outcome": "executed", "closed_at": database_now() - timedelta(days=2)}
    for days in (2, 3):
        make_tick(schedule, seconds_ago=days * 86_400, **over)
    with replica:
        assert prune(timedelta(days=1)).ticks == 1


def test_what_is_broken_is_looked_at_and_a_command_finds_it(replica: override_settings) -> None:
    store(make_schedule(), broken_reason="ValueError: mended meanwhile")
    with replica:
        assert healing.heal() == {"nightly": ""}
        assert named("nightly").broken_reason == ""


def test_an_alert_is_handled(replica: override_settings) -> None:
    ana = get_user_model().objects.create_user("ana")
    alert = Alert.objects.create(rule="missed", subject="nightly", message="x")
    with replica:
        handling.acknowledge(alert, note="seen", who=ana)
        alert.refresh_from_db()
        assert alert.note == "seen"
        assert handling.set_rule("missed", enabled=False, threshold=None, who=ana)
        assert not handling.set_rule("missed", enabled=False, threshold=None, who=ana)
