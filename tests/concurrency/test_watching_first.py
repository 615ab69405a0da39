"""A task that is declared with ``none`` runs as ever, and what collides is seen before anything is kept apart."""

from __future__ import annotations

import pytest
from django.test import Client

from scheduler.models import Execution
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, wait_until
from tests.support.celery_tasks import watched
from tests.support.celery_ways import WORKER
from tests.support.doors import open_door
from tests.support.pages import staff, url, words

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency]


def number_of(state: ExecutionState) -> int:
    return Execution.objects.filter(state=state).count()


def test_calls_that_overlap_are_counted_and_none_waits_for_another(
    celery_processes: CeleryProcesses, client: Client
) -> None:
    celery_processes.worker(*WORKER, concurrency=2)
    for _ in range(2):
        watched.delay(seconds=120)
    wait_until(lambda: number_of(ExecutionState.RUNNING) == 2, timeout=40, message="both are inside at once")
    open_door("")  # a call has no schedule
    wait_until(lambda: number_of(ExecutionState.EXECUTED) == 2, timeout=40, message="both ran to their end")
    client.force_login(staff("viewer", "view_dashboard"))
    shown = words(client.get(url("dashboard_changelist")).content.decode())
    assert "Overlaps, proven 1 " in shown and f"{watched.name} none on 2 1 0 0 0 0 1 0 0 0" in shown
