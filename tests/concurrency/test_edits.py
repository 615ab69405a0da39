"""An edit takes effect within two seconds, however it was made, with two beats alive and without a restart.

Measured from the audit, by the database's clock alone: from the instant that the trigger stamped on the edited row
(``activated_at``) to the stamp of the first execution that the new recurrence started, or of the last one that the
old recurrence started. For each edit the bound is two seconds and the machine's own lateness at that time: how late
a schedule of every second, which nobody edits and the same beats and worker serve, was started meanwhile. A machine
that is busy with something else delays both.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F, Max
from django.test import Client
from django.urls import reverse

from scheduler.models import Execution, Instance, Schedule, Tick
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import database_now, make_schedule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.concurrency]

DIGEST = "aegis_site.demo.tasks.send_digest"
PROMISE = 2.0  # seconds
ROUNDS = 3
NEVER = datetime(2100, 1, 1, tzinfo=UTC)
ON: dict[str, Any] = {"every_seconds": 1, "once_at": None}
OFF: dict[str, Any] = {"every_seconds": None, "once_at": NEVER}


def by_form(schedule: Schedule, change: dict[str, Any]) -> None:
    """As a person does it: the whole form is posted."""
    client = Client()
    client.force_login(User.objects.get_or_create(username="boss", is_staff=True, is_superuser=True)[0])
    once_at = change["once_at"]
    posted = {
        "name": schedule.name, "task": schedule.task, "args": "[]", "kwargs": "{}", "cron_expression": "",
        "time_zone": "UTC", "every_seconds": change["every_seconds"] or "", "anchor": "1970-01-01T00:00:00",
        "once_at": f"{once_at:%Y-%m-%dT%H:%M:%S}" if once_at else "", "lock_name": schedule.lock_id,
        "strategy": "database", "once_per_tick": "on", "delivery": "one_worker", "overlap": "skip",
        "jitter_seconds": "0", "misfire": "fire_once", "misfire_grace": "60", "catch_up_window": "3600",
        "max_attempts": "1", "enabled": "on",
    }  # fmt: skip
    url = reverse("admin:aegis_scheduler_schedule_change", args=[schedule.pk])
    response = client.post(url, posted)
    assert response.status_code == 302, response.context["adminform"].form.errors


def by_save(schedule: Schedule, change: dict[str, Any]) -> None:
    """A full save of an object that was read before."""
    for name, value in change.items():
        setattr(schedule, name, value)
    schedule.save()


def by_update(schedule: Schedule, change: dict[str, Any]) -> None:
    Schedule.objects.filter(pk=schedule.pk).update(**change)


def by_sql(schedule: Schedule, change: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET every_seconds = %s, once_at = %s WHERE id = %s",
            [change["every_seconds"], change["once_at"], schedule.pk],
        )


WAYS: list[Callable[[Schedule, dict[str, Any]], None]] = [by_form, by_save, by_update, by_sql]


def edited(way: Callable[[Schedule, dict[str, Any]], None], name: str, change: dict[str, Any]) -> datetime:
    """Make the edit; returns the instant that the trigger stamped."""
    way(Schedule.objects.get(name=name), change)
    at = Schedule.objects.get(name=name).activated_at
    assert at is not None
    return at


def starts(name: str) -> Any:
    return Execution.objects.filter(tick__schedule_name=name, began=True)


def lateness_since(at: datetime) -> float:
    """How late the schedule that nobody edits was started, at most, since then; seconds."""
    since = starts("control").filter(started_at__gte=at)
    wait_until(since.exists, timeout=60, message="the control schedule was started")
    late = since.aggregate(most=Max(F("started_at") - F("tick__fire_time")))
    return float(late["most"].total_seconds())


def await_control(count: int) -> None:
    """Return when the control schedule has been started so many times more: a second each, on an idle machine."""
    now = database_now()
    wait_until(
        lambda: starts("control").filter(started_at__gt=now).count() >= count,
        timeout=60,
        message=f"the control schedule was started {count} times more",
    )


def lags_of(way: Callable[[Schedule, dict[str, Any]], None], name: str) -> list[tuple[float, float]]:
    """(seconds until an edit took effect, lateness of the machine meanwhile): on and off again, some times."""
    lags = []
    for _ in range(ROUNDS):
        on = edited(way, name, ON)
        first = wait_until(
            lambda on=on: starts(name).filter(started_at__gte=on).order_by("started_at").first(),
            timeout=60,
            message=f"{name} was started after it was switched to every second",
        )
        lags.append(((first.started_at - on).total_seconds(), lateness_since(on)))
        off = edited(way, name, OFF)
        await_control(3)
        last = starts(name).aggregate(last=Max("started_at"))["last"]
        lags.append((max(0.0, (last - off).total_seconds()), lateness_since(off)))
    return lags


def test_every_way_of_editing_takes_effect_within_two_seconds_and_a_broken_row_stops_only_itself(
    celery_processes: CeleryProcesses, settings: Any
) -> None:
    settings.SECURE_SSL_REDIRECT = False
    make_schedule("control", every_seconds=1, task=DIGEST)
    make_schedule("broken", every_seconds=1, task=DIGEST)
    for way in WAYS:
        make_schedule(way.__name__, once_at=NEVER, task=DIGEST)
    celery_processes.worker(concurrency=2)
    celery_processes.beat()
    celery_processes.beat()
    wait_until(lambda: Instance.objects.filter(kind="beat").count() == 2, timeout=60, message="both beats are there")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET every_seconds = NULL, cron_expression = '61 * * * *' "
            "WHERE name = 'broken'"
        )
    await_control(3)
    broken = Schedule.objects.get(name="broken")
    assert "61" in broken.broken_reason
    stored = Tick.objects.filter(schedule=broken).count()

    for way in WAYS:
        lags = lags_of(way, way.__name__)
        said = f"{way.__name__}: {[(round(lag, 2), round(late, 2)) for lag, late in lags]}"
        assert all(lag <= PROMISE + late for lag, late in lags), said

    assert Tick.objects.filter(schedule=broken).count() == stored
    doubled = Tick.objects.filter(executions__began=True).exclude(attempt=1)
    assert not doubled.exists()
