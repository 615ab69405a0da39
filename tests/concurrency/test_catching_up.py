"""A backlog under "fire all": beats were down, and each fire time is to have its run."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from aegis_site.demo.models import Effect
from scheduler.models import Execution, Tick
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_ways import TASKS, WORKER
from tests.support.engine import database_now, make_schedule, store

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]

BACKLOG = 5


def test_every_missed_fire_time_has_its_body_one_after_the_other_oldest_first(
    celery_processes: CeleryProcesses,
) -> None:
    """Many slots are free, and the lock lets one in at a time."""
    now = database_now()
    schedule = make_schedule(
        task=f"{TASKS}.early", kwargs={"seconds": 0.5}, every_seconds=600, anchor=now - timedelta(seconds=300),
        misfire="fire_all", ttl=3.0,
    )  # fmt: skip
    store(schedule, activated_at=now - timedelta(seconds=600 * BACKLOG))
    celery_processes.worker(*WORKER, concurrency=4)
    celery_processes.beat()
    bodies = Execution.objects.filter(began=True, ended_at__isnull=False).order_by("started_at")
    wait_until(lambda: Tick.objects.count() >= BACKLOG, timeout=60, message="all were stored")
    wait_until(lambda: not Tick.objects.filter(outcome="").exists(), timeout=60, message="all are over")
    assert set(Tick.objects.values_list("outcome", flat=True)) == {"executed"}
    assert bodies.count() == BACKLOG == Effect.objects.count()
    times = list(bodies.values_list("tick__fire_time", flat=True))
    assert all(before < after for before, after in pairwise(times))
