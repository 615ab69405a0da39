"""The schema's own guards: migrations both ways, and constraints that hold against raw SQL."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection

from locks.models import FenceRecord
from scheduler.models import Execution, LockName, Schedule, Tick
from scheduler.runner import run
from tests.support.engine import delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


def test_migrations_go_back_and_forth() -> None:
    for app in ("aegis_demo", "aegis_scheduler", "aegis_locks"):
        call_command("migrate", app, "zero", verbosity=0)
    call_command("migrate", verbosity=0)
    make_schedule()


def test_no_model_has_changed_without_a_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_a_lock_name_comes_with_its_fence_however_it_is_stored() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO aegis_scheduler_lockname (name, alias_wanted, alias_in_force) VALUES ('raw', 'redis', '')"
        )
    assert FenceRecord.objects.get(name="raw").token == 0


@pytest.mark.parametrize(
    ("table", "change", "constraint"),
    [
        ("schedule", "every_seconds = 60", "aegis_schedule_one_recurrence"),
        ("schedule", "once_at = NULL", "aegis_schedule_one_recurrence"),
        ("schedule", "ttl = 0", "aegis_schedule_ttl_positive"),
        ("schedule", "misfire_grace = 0", "aegis_schedule_grace_positive"),
        ("schedule", "max_attempts = 0", "aegis_schedule_attempts_from_one"),
        ("schedule", "misfire = 'sometimes'", "aegis_schedule_misfire_known"),
        ("schedule", "delivery = 'nobody'", "aegis_schedule_delivery_known"),
        ("schedule", "start_at = '2030-01-01', end_at = '2029-01-01'", "aegis_schedule_window_ordered"),
        ("schedule", "end_at = 'infinity'", "aegis_schedule_instants_in_calendar"),
        ("schedule", "start_at = '-infinity'", "aegis_schedule_instants_in_calendar"),
        ("schedule", "anchor = '0044-03-15 BC'", "aegis_schedule_instants_in_calendar"),
        ("schedule", "next_fire_at = '10000-01-01'", "aegis_schedule_instants_in_calendar"),
        ("schedule", "paused_at = 'infinity'", "aegis_schedule_instants_in_calendar"),
        ("lockname", "name = 'UPPER CASE'", "aegis_lockname_spelling"),
        ("lockname", "alias_wanted = ''", "aegis_lockname_alias_wanted_set"),
        ("tick", "state = 'closed'", "aegis_tick_outcome_iff_over"),
        ("tick", "outcome = 'executed'", "aegis_tick_outcome_iff_over"),
        ("tick", "state = 'closed', outcome = 'prevented'", "aegis_tick_unrun_has_reason"),
        ("tick", "attempt = 0", "aegis_tick_attempt_from_one"),
        ("tick", "state = 'elsewhere'", "aegis_tick_(state_known|outcome_iff_over)"),
        ("execution", "state = 'running', ended_at = NULL, began = false", "aegis_execution_running_began"),
        ("execution", "state = 'prevented', ended_at = NULL", "aegis_execution_started_or_refused"),
        ("execution", "ended_at = NULL", "aegis_execution_ended_iff_over"),
        ("execution", "returned_at = now()", "aegis_execution_only_abandoned_returns"),
    ],
)
def test_an_invariant_holds_against_raw_sql(table: str, change: str, constraint: str) -> None:
    _one_of_each()
    with pytest.raises(IntegrityError, match=constraint), connection.cursor() as cursor:
        cursor.execute(f"UPDATE aegis_scheduler_{table} SET {change}")


def test_a_fire_time_is_stored_once_and_a_body_begins_once_per_attempt() -> None:
    tick = _one_of_each()
    copy = {f.attname: getattr(tick, f.attname) for f in Tick._meta.concrete_fields if not f.primary_key}
    with pytest.raises(IntegrityError, match="aegis_tick_once_per_fire_time"):
        Tick.objects.create(**copy)
    execution = Execution.objects.get()
    again: dict[str, Any] = {
        f.attname: getattr(execution, f.attname) for f in Execution._meta.concrete_fields if not f.primary_key
    }
    with pytest.raises(IntegrityError, match="aegis_execution_body_once_per_attempt"):
        Execution.objects.create(**{**again, "lease_id": uuid4(), "state": "running", "ended_at": None})


def _one_of_each() -> Tick:
    tick = make_tick(make_schedule())
    run(delivery_of(tick), lambda context: None)
    Tick.objects.update(state="started", outcome="", closed_at=None)
    assert Schedule.objects.exists() and LockName.objects.exists()
    tick.refresh_from_db()
    return tick
