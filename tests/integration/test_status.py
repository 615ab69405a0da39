"""``aegis status``: the overview in words and the held locks, with exit statuses for scripts."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.models.functions import Now

from locks import lock_backends
from scheduler.dashboard import rows
from scheduler.models import Alert, Schedule
from scheduler.pausing import pause
from tests.integration.test_schedule_pages import many, prevented, ran
from tests.support.engine import make_schedule, make_tick

GAUGE = r'[a-z_0-9]+(\{[a-z]+="([^"\\\n]|\\.)*"\})? [-+.0-9e]+'

pytestmark = pytest.mark.django_db(transaction=True)


def status(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("aegis", "status", *arguments, stdout=out, stderr=StringIO())
    except CommandError as failed:
        return failed.returncode, out.getvalue()
    return 0, out.getvalue()


def test_it_says_what_the_overview_says() -> None:
    code, said = status()
    assert code == 0 and "never heard" in said and "No lock is held." in said
    schedule = make_schedule("billing", every_seconds=60)
    ran(schedule, 60)
    prevented(schedule, 30)
    make_schedule("clash", alias="none", every_seconds=60)
    clash = make_schedule("clash-2", alias="none", every_seconds=60)
    ran(clash, 40, ran=20)
    ran(clash, 30, ran=5, worker="worker@2")
    pause("clash", why="audit", who="ada")
    lease = lock_backends["database"].acquire("spare", ttl=60)
    assert lease is not None
    code, said = status("--format", "json")
    lock_backends["database"].release(lease)
    found = json.loads(said)
    assert code == 0 and found["schedules"] == {"Active": 2, "Paused": 1}
    assert found["outcomes"] == {"executed": 3, "prevented": 1} and found["overlaps"] == 1
    assert [lock["name"] for lock in found["locks"]] == ["spare"] and found["beats"] == 0


def test_it_counts_the_whole_day_and_says_where_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    clash = make_schedule("clash", alias="none")
    ran(clash, 7200, ran=20)
    ran(clash, 7190, ran=5, worker="worker@2")
    make_tick(clash, seconds_ago=60, state="misfired", outcome="misfired", reason="late", missed_count=7)
    many(make_schedule("busy"), 501)
    found = json.loads(status("--format", "json")[1])
    assert (found["overlaps"], found["missed_fire_times"], found["counted_from"]) == (1, 7, None)
    assert found["outcomes"] == {"executed": 503, "misfired": 1}
    said = status()[1]
    assert "1 proven, 0 possible" in said and "7 fire times" in said and "begin at" not in said
    monkeypatch.setattr(rows, "MOST_TICKS", 300)
    assert json.loads(status("--format", "json")[1])["counted_from"] is not None
    assert "these figures begin at" in status()[1]


def test_a_store_that_does_not_answer_is_69_and_the_rest_is_shown(services: Any) -> None:
    services.redis["locks"].pause()
    code, said = status("--format", "json")
    assert code == 69 and json.loads(said)["unreachable"] == ["redis"]
    services.redis["locks"].resume()


def test_a_database_that_does_not_answer_is_69(services: Any) -> None:
    services.postgres.stop()
    connections.close_all()
    try:
        assert status()[0] == 69
    finally:
        services.postgres.start()
        connections.close_all()


def test_gauges_are_what_collectors_read() -> None:
    late = make_schedule('odd "name"\\', every_seconds=60, lock_name="odd")
    ran(late, 60)
    paused = make_schedule("paused", every_seconds=60)
    pause("paused", why="audit", who="ada")
    Schedule.objects.filter(pk__in=[late.pk, paused.pk]).update(next_fire_at=Now() - timedelta(seconds=500))
    Alert.objects.create(rule="missed", subject="x", message="m", state="open")
    code, said = status("--format", "prometheus")
    lines = said.splitlines()
    assert code == 0 and all(re.fullmatch(GAUGE, line) for line in lines if not line.startswith("# "))
    assert 'aegis_ticks_24h{outcome="executed"} 1' in lines and "aegis_beats 0" in lines
    assert 'aegis_schedules{state="paused"} 1' in lines and 'aegis_alerts_open{rule="missed"} 1' in lines
    behind = [line for line in lines if line.startswith("aegis_schedule_overdue_seconds{")]
    assert len(behind) == 1
    name, value = behind[0].rsplit(" ", 1)
    assert name == 'aegis_schedule_overdue_seconds{schedule="odd \\"name\\"\\\\"}' and 499 < float(value) < 560
    assert sum(line.startswith("aegis_schedule_last_executed_timestamp_seconds{") for line in lines) == 1


def test_a_store_that_is_away_is_a_gauge_and_a_status(settings: Any) -> None:
    settings.LOCKS = {**settings.LOCKS, "away": {**settings.LOCKS["redis"], "LOCATION": "redis://127.0.0.1:1/0"}}
    code, said = status("--format", "prometheus")
    assert code == 69 and 'aegis_store_unreachable{strategy="away"} 1' in said.splitlines()
