"""The doctor beside real workers and beats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.delivery import STAMP_VERSION
from scheduler.models import Instance
from scheduler.models.tick import Delivery
from scheduler.version import VERSION
from tests.support import CeleryProcesses
from tests.support.engine import make_schedule
from tests.support.processes import PROJECT, database_url
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency, pytest.mark.slow]


def doctor() -> tuple[int, list[dict[str, str]]]:
    """As an operator runs it: a process of its own."""
    run = subprocess.run(
        [sys.executable, "manage.py", "aegis", "doctor", "--format", "json"],
        cwd=PROJECT, env={**os.environ, "DATABASE_URL": database_url()}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return run.returncode, json.loads(run.stdout)["findings"]


def said(topic: str, level: str) -> str:
    _, found = doctor()
    return " | ".join(f["sentence"] for f in found if (f["topic"], f["level"]) == (topic, level))


def until_said(topic: str, level: str, words: str) -> None:
    last: list[str] = []

    def seen() -> bool:
        last[:] = [said(topic, level)]
        return words in last[0]

    wait_until(seen, timeout=60, message=lambda: f"{topic} says {words!r} ({level}); it says {last}")


def clocks_told(count: int) -> Callable[[], Any]:
    return lambda: Instance.objects.exclude(clock_offset=None).filter(stopped_at=None).count() >= count


def test_a_healthy_fleet_exits_0_and_a_stopped_beat_is_missed(celery_processes: CeleryProcesses) -> None:
    make_schedule("nightly", every_seconds=3600)
    make_schedule("everywhere", every_seconds=3600, delivery=Delivery.EVERY_WORKER, kwargs={"seconds": 1})
    celery_processes.worker(name="one", concurrency=2)
    beat = celery_processes.beat(name="first")
    wait_until(clocks_told(2), timeout=60, message="both have told their clocks")
    status, found = doctor()
    assert status == 0, [f for f in found if f["level"] == "fail"]
    sentences = " | ".join(f["sentence"] for f in found if f["level"] == "ok")
    assert "1 beat(s), the last pass" in sentences
    assert "1 worker(s) read all 2 queues" in sentences
    assert f"2 processes run version {VERSION}" in sentences
    assert "the clocks of 2 processes are within" in sentences
    assert "1 workers and 1 beats may take" in sentences
    worker = Instance.objects.get(kind="worker")
    assert (worker.pool, worker.concurrency) == ("prefork", 2)
    assert worker.queues == ["aegis.every_worker", "celery"]
    beat.stop()
    assert "no beat is alive" in said("life", "fail")
    assert doctor()[0] == 1


def test_a_frozen_beat_is_missed_when_its_stamps_are_old(celery_processes: CeleryProcesses) -> None:
    beat = celery_processes.beat(name="frozen")
    wait_until(lambda: Instance.objects.filter(kind="beat").exists(), timeout=60, message="the beat has shown itself")
    beat.pause()
    try:
        until_said("life", "fail", "no beat is alive; the last pass was")
    finally:
        beat.resume()
    until_said("life", "ok", "1 beat(s)")


def test_a_worker_of_another_version_and_of_another_queue(celery_processes: CeleryProcesses) -> None:
    make_schedule("nightly", every_seconds=3600)
    celery_processes.beat(name="first")
    celery_processes.python(
        "next", "-m", "tests.support.next_version", "9.9.9", str(STAMP_VERSION + 1), "-A", "aegis_site", "worker",
        "-n", "next@test", "-P", "threads", "-c", "1", "-Q", "other", "--without-mingle", "--without-gossip",
    )  # fmt: skip
    wait_until(lambda: Instance.objects.filter(name="next@test").exists(), timeout=60, message="it has shown itself")
    assert f"9.9.9: next@test; here: {VERSION}" in said("code", "warn")
    assert f"next@test ({STAMP_VERSION + 1})" in said("code", "fail")
    assert "no live worker reads celery, to which nightly are sent" in said("life", "fail")
    assert Instance.objects.get(name="next@test").pool == "thread"
