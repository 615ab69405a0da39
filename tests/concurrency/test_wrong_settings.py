"""A real beat and a real worker under settings that a system check refuses: here ``USE_TZ = False``."""

from __future__ import annotations

import pytest

from tests.support import CeleryProcesses, wait_until
from tests.support.celery_tasks import after
from tests.support.celery_ways import WORKER

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency]

LOCAL_TIME = {"DJANGO_SETTINGS_MODULE": "tests.support.local_time_settings"}
SAID = "aegis.scheduler.E004: USE_TZ is off: fire times would be ambiguous. Set USE_TZ = True."


def test_a_beat_refuses_to_start_and_says_why(celery_processes: CeleryProcesses) -> None:
    log = celery_processes.logs / "beat.log"
    beat = celery_processes.python("beat", "-m", "celery", "-A", "aegis_site", "beat", "-l", "INFO", env=LOCAL_TIME)
    wait_until(lambda: not beat.running, timeout=60, message="the beat ends by itself")
    assert beat.returncode not in (0, None)
    assert f"This beat does not start: the system checks found errors.\n{SAID}" in log.read_text()


def test_a_worker_says_it_in_its_log_once_and_serves_other_tasks(celery_processes: CeleryProcesses) -> None:
    # Celery's switch for its own round of checks has no part in it.
    worker = celery_processes.worker(*WORKER, env={**LOCAL_TIME, "CELERY_SKIP_CHECKS": "1"})
    done = f"Task {after.name}[{after.delay(1).id}] succeeded"
    wait_until(lambda: done in worker.log.read_text(), timeout=40, message=done)
    said = worker.log.read_text()
    assert said.count("aegis.scheduler.E004") == 1 and f"ERROR/MainProcess] {SAID}" in said
