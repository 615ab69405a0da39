"""The list of schedules and the page of one: what they show, who may see it, and how much they ask the database."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scheduler import registry
from scheduler.dashboard import rows
from scheduler.models import Execution, Schedule, Tick
from scheduler.pausing import pause, switch
from tests.support.engine import database_now, make_schedule, make_tick
from tests.support.pages import staff, url

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:aegis_scheduler_schedule_changelist"
PAGE = "admin:aegis_scheduler_schedule_page"
HOSTILE = "<script>alert('&')</script>"


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(staff("vera", "view_schedule"))
    return client


def html(response: Any) -> str:
    assert response.status_code == 200
    page: str = response.content.decode()
    return page


def text(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index('id="main"') :]))


def ran(
    schedule: Schedule, seconds_ago: float, ran: float = 2.0, worker: str = "worker@1", **fields: Any
) -> Execution:
    """A tick that one worker ran."""
    tick = make_tick(schedule, seconds_ago=seconds_ago, state="closed", outcome="executed", closed_at=database_now())
    start = tick.fire_time + timedelta(milliseconds=40)
    facts: dict[str, Any] = {
        "tick": tick, "guarded": True, "lock_name": schedule.lock_id, "lock_alias": tick.lock_alias,
        "state": "executed", "lease_id": uuid.uuid4(), "token": 7, "worker": worker, "started_at": start,
        "heartbeat_at": start, "ended_at": start + timedelta(seconds=ran), "ran": ran, "began": True,
        "recorded_at": start,
    }  # fmt: skip
    return Execution.objects.create(**{**facts, **fields})


def many(schedule: Schedule, number: int) -> None:
    """So many ticks, each with one body of half a second, a second apart."""
    model = ran(schedule, 0, ran=0.5)
    ago = [timedelta(seconds=1 + index) for index in range(number - 1)]
    ticks = [copy_of(model.tick, fire_time=model.tick.fire_time - at) for at in ago]
    Tick.objects.bulk_create(ticks)
    stamps = ("started_at", "heartbeat_at", "ended_at", "recorded_at")
    Execution.objects.bulk_create(
        copy_of(model, tick=tick, lease_id=uuid.uuid4(), **{name: getattr(model, name) - at for name in stamps})
        for tick, at in zip(ticks, ago, strict=True)
    )


def copy_of(row: Any, **changes: Any) -> Any:
    return type(row)(**{**{f.name: getattr(row, f.name) for f in row._meta.fields if f.name != "id"}, **changes})


def prevented(schedule: Schedule, seconds_ago: float) -> Tick:
    """A tick that gave way, and the one try that was refused."""
    tick = make_tick(schedule, seconds_ago=seconds_ago, state="closed", outcome="prevented", reason="held")
    Execution.objects.create(
        tick=tick, guarded=True, lock_name=schedule.lock_id, lock_alias=tick.lock_alias, state="prevented",
        worker="worker@2", recorded_at=tick.fire_time,
    )  # fmt: skip
    return tick


def sparks(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall(r'<svg class="aegis-spark".*?</svg>', page, re.S)]


def names(page: str) -> list[str]:
    return re.findall(r'<td class="field-linked_name"><a href="[^"]+"><strong>(.*?)</strong>', page)


def test_the_list_shows_state_next_run_history_strategy_and_counts(viewer: Client) -> None:
    schedule = make_schedule("billing", cron_expression="*/5 * * * *", time_zone="Europe/Berlin", ttl=8.0)
    Schedule.objects.update(next_fire_at=database_now() + timedelta(seconds=29))
    for number in range(6):
        ran(schedule, 300 * number + 60)
    prevented(schedule, 30)
    ran(schedule, 40, ran=30, worker="worker@2", state="lost")
    page = html(viewer.get(reverse(LIST)))
    heads = re.findall(r'<div class="text">\s*(?:<a[^>]*>|<span>)(.*?)</', page, re.S)
    assert [head.strip().lower() for head in heads][-10:] == [
        "state", "name", "schedule", "zone", "next run (utc)", "last 60 ticks", "last (utc)", "strategy",
        "overlaps / prevented 24 h", "headroom",
    ]  # fmt: skip
    shown = text(page)
    for said in ("Active", "*/5 * * * *", "Europe/Berlin", "in 2", "database", "tick guard"):
        assert said in shown, said
    (spark,) = sparks(page)
    assert spark.attrib["role"] == "img" and "1 prevented" in spark.attrib["aria-label"]
    assert sum(path.attrib["d"].count("M") for path in spark.findall("path")) == 60
    assert len(spark.findall("path")) <= 4, "one for each look, not one for each tick"
    assert "1 / 1" in shown or "0 / 1" in shown


def test_each_second_run_that_was_prevented_counts_as_on_the_overview(viewer: Client) -> None:
    """Also copies of a tick that ran: a schedule whose lock was just mended shows that it works."""
    schedule = make_schedule("mended", every_seconds=60)
    execution = ran(schedule, 30)
    for state in ("prevented", "duplicate"):
        again = {"tick": execution.tick, "lock_name": schedule.lock_id, "lock_alias": execution.lock_alias}
        Execution.objects.create(**again, guarded=True, state=state, worker="worker@2", recorded_at=database_now())
    shown = text(html(viewer.get(reverse(PAGE, args=[schedule.pk]))))
    assert "Prevented 2 " in shown and "Gave way" not in shown
    assert "/ 2 " in text(html(viewer.get(reverse(LIST))))


def test_an_overlap_is_counted_drawn_and_filtered_for(viewer: Client) -> None:
    schedule, other = make_schedule("clash", alias="none", every_seconds=60), make_schedule("calm", every_seconds=60)
    ran(schedule, 40, ran=20)
    ran(schedule, 30, ran=5, worker="worker@2")
    ran(other, 30)
    page = html(viewer.get(reverse(LIST)))
    overlap = next(spark for spark in sparks(page) if "1 overlap" in spark.attrib["aria-label"])
    assert [path for path in overlap.findall("path") if path.attrib["class"].endswith("bad-hatch")]
    filtered = html(viewer.get(reverse(LIST), {"overlaps": "yes"}))
    assert names(filtered) == ["clash"] and "1 / 0" in re.sub(r"\s+", " ", text(filtered))
    assert "no lock, tick guard" in text(filtered)


def test_a_slow_schedule_shows_its_overlap_beside_a_busy_one(viewer: Client) -> None:
    slow = make_schedule("slow", alias="none", lock_name="shared")
    ran(slow, 7200, ran=5)
    ran(slow, 7190, ran=5)
    ran(slow, 50_000, ran=2)
    ran(make_schedule("other", alias="none", lock_name="shared"), 18_000, ran=11_000)
    many(make_schedule("busy"), 501)
    shown = {name: spark.attrib["aria-label"] for name, spark in zip(*named(viewer), strict=True)}
    assert "2 overlap" in shown["slow"], "another schedule's body was inside for hours under the name"
    assert "overlap" not in shown["other"] + shown["busy"]


def named(viewer: Client) -> tuple[list[str], list[ElementTree.Element]]:
    page = html(viewer.get(reverse(LIST)))
    return names(page), sparks(page)


def test_a_day_that_is_too_much_to_count_is_said(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = make_schedule("billing")
    many(schedule, 6)
    make_schedule("other")
    pages = (reverse(LIST), reverse(PAGE, args=[schedule.pk]))
    assert not any("these figures begin at" in html(viewer.get(page)) for page in pages)
    monkeypatch.setattr(rows, "MOST_TICKS", 4)
    assert all("these figures begin at" in html(viewer.get(page)) for page in pages)
    data = html(viewer.get(reverse("admin:aegis_scheduler_schedule_data", args=[schedule.pk])))
    assert json.loads(data)["day"]["counted_from"] is not None


def test_the_same_word_is_the_same_count_on_every_page(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    schedule = make_schedule("clash", alias="none", once_per_tick=False)
    first = ran(schedule, 40, ran=20, guarded=False)
    for worker in ("worker@2", "worker@3"):
        copy_of(first, worker=worker, guarded=False, lease_id=uuid.uuid4()).save()
    Tick.objects.update(outcome="failed")
    make_tick(schedule, seconds_ago=30, state="misfired", outcome="misfired", reason="late", missed_count=7)
    make_tick(schedule, seconds_ago=1)
    tiles = text(html(client.get(url("dashboard_changelist", window="24h"))))
    page = text(html(client.get(reverse(PAGE, args=[schedule.pk]))))
    listed = text(html(client.get(reverse(LIST))))
    assert "Overlaps, proven 2" in tiles and "Overlaps 2" in page and "2 / 0" in listed
    assert "Missed 7" in tiles and "Missed 7" in page
    assert "Ran once 0 %" in tiles and "Ran once 0 %" in page
    assert "Failed 1 1 failed" in tiles and "Failed 1" in page
    assert re.search(r"clash none off 3 0 0 0 0 2 2 0 7 1 Show", tiles), "the last but one: blocked or failed"


def test_states_are_words_and_filters(viewer: Client) -> None:
    for name in ("active", "paused", "disabled", "broken", "finished", "overdue"):
        make_schedule(name, every_seconds=3600)
    now = database_now()
    pause("paused", why="audit", who="ada")
    switch("disabled", enabled=False, who="ada")
    Schedule.objects.filter(name="broken").update(broken_reason="no such zone")
    Schedule.objects.filter(name="finished").update(exhausted=True)
    Schedule.objects.filter(name__in=["active", "overdue"]).update(next_fire_at=now + timedelta(hours=1))
    Schedule.objects.filter(name="overdue").update(next_fire_at=now - timedelta(seconds=60))
    for name in ("active", "paused", "disabled", "broken", "finished", "overdue"):
        page = html(viewer.get(reverse(LIST), {"state": name}))
        assert names(page) == [name]
        row = page[page.index('class="field-state"') : page.index('class="field-linked_name"')]
        assert name.capitalize() in row, row
    for bad in ({"state": "nonsense"}, {"overlaps": "maybe"}):
        assert len(names(html(viewer.get(reverse(LIST), bad)))) == 0


def test_other_filters(viewer: Client) -> None:
    make_schedule("a", alias="redis", time_zone="Europe/Berlin", cron_expression="0 1 * * *", queue="slow")
    make_schedule("b", alias="database", every_seconds=60)
    for query in ({"strategy": "redis"}, {"time_zone": "Europe/Berlin"}, {"queue": "slow"}):
        assert names(html(viewer.get(reverse(LIST), query))) == ["a"], query


def test_the_next_run_comes_first_and_what_has_none_last(viewer: Client) -> None:
    now = database_now()
    for name, ahead in (("later", 7200), ("soon", 60), ("never", None)):
        make_schedule(name, every_seconds=86_400)
        at = None if ahead is None else now + timedelta(seconds=ahead)
        Schedule.objects.filter(name=name).update(next_fire_at=at)
    assert names(html(viewer.get(reverse(LIST)))) == ["soon", "later", "never"]


def test_fifty_rows_a_page_and_as_many_queries_as_for_one(viewer: Client) -> None:
    counts = []
    for number in range(60):
        schedule = make_schedule(f"s{number:02}", every_seconds=60)
        ran(schedule, 50, ran=70)
        prevented(schedule, 20)
        if number in (0, 59):
            with CaptureQueriesContext(connection) as captured:
                page = html(viewer.get(reverse(LIST)))
            counts.append(len(captured))
    assert counts[0] == counts[1] <= 22
    assert len(names(page)) == 50


def test_a_page_asks_for_the_declared_tasks_once(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        make_schedule(name)
    asked = []
    tasks = registry.exclusive_tasks
    monkeypatch.setattr(registry, "exclusive_tasks", lambda: (asked.append(1), tasks())[1])
    assert len(names(html(viewer.get(reverse(LIST))))) == 3
    assert len(asked) == 1


def test_the_page_of_a_schedule(viewer: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60, ttl=3.0, notes="first line\nsecond")
    make_schedule("twin", every_seconds=60, lock_name=schedule.lock_id)
    for number in range(8):
        ran(schedule, 60 * number + 30, ran=2 + number / 10)
    page = html(viewer.get(reverse(PAGE, args=[schedule.pk])))
    shown = text(page)
    assert page.count("<h1") == 1
    for said in (
        "Every minute",
        "Strategy: database",
        "lock.billing",
        "free",
        "Shares the lock with twin",
        "p95 run",
    ):
        assert said in shown, said
    assert "0 of 8 ticks (95 % bound" in shown and "lease 3 s" in shown and "No tick yet" not in shown
    assert "Edit" not in shown and "Pause" not in shown and "Run now" not in shown
    chart = re.search(r'<svg class="aegis-chart".*?</svg>', page, re.S)
    assert chart is not None and len(ElementTree.fromstring(chart[0]).findall(".//{*}g[@role='listitem']")) == 8
    assert page.count('<details class="aegis-details">') == 1 and "style=" not in page[page.index('id="main"') :]


def test_a_strategy_that_cannot_be_made_is_not_known_to_hold(client: Client, settings: Any) -> None:
    settings.LOCKS = {**settings.LOCKS, "sick": {"BACKEND": "no.such.Backend"}}
    schedule = make_schedule("report", alias="sick")
    client.force_login(User.objects.create_superuser("root"))
    assert "not known whether the lock is held" in html(client.get(f"/admin/aegis_scheduler/schedule/{schedule.pk}/"))
    asked = client.get(f"/admin/aegis_scheduler/schedule/strategy/?schedule={schedule.pk}&to=sick")
    assert asked.status_code == 200
    other = make_schedule("other", alias="redis")
    asked = client.get(f"/admin/aegis_scheduler/schedule/strategy/?schedule={other.pk}&to=sick")
    assert "unreachable" in html(asked)


def test_a_schedule_without_a_tick_says_what_comes_next(viewer: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    shown = text(html(viewer.get(reverse(PAGE, args=[schedule.pk]))))
    assert "No tick yet. The first is due" in shown and "no ticks yet" in shown


def test_the_data_beside_the_page(viewer: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    ran(schedule, 30)
    found = json.loads(html(viewer.get(reverse("admin:aegis_scheduler_schedule_data", args=[schedule.pk]))))
    (tick,) = found["ticks"]
    assert (tick["ran"], tick["outcome"], tick["workers"]) == (2.0, "executed", ["worker@1"])
    assert tick["waited"] == pytest.approx(0.04) and found["day"]["overlaps"] == 0


def test_the_page_asks_as_much_for_many_ticks_as_for_one(viewer: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    counts = []
    for number in range(40):
        ran(schedule, 30 + number * 10)
        if number in (0, 39):
            with CaptureQueriesContext(connection) as captured:
                html(viewer.get(reverse(PAGE, args=[schedule.pk])))
            counts.append(len(captured))
    assert counts[0] == counts[1] <= 24


def test_buttons_follow_the_permissions_and_the_pause(client: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    client.force_login(staff("olga", "view_schedule", "run_schedule", "pause_schedule", "change_schedule"))
    shown = text(html(client.get(reverse(PAGE, args=[schedule.pk]))))
    assert all(word in shown for word in ("Run now", "Pause…", "Edit")) and "Resume" not in shown
    pause("billing", why=HOSTILE, who="ada")
    page = html(client.get(reverse(PAGE, args=[schedule.pk])))
    assert "Resume…" in text(page) and "Pause…" not in text(page)
    assert HOSTILE not in page and "&lt;script&gt;" in page
    assert "pause reason" in text(page) and "ada" in text(page)


def test_who_may_see_it(client: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    pages = [reverse(PAGE, args=[schedule.pk]), reverse("admin:aegis_scheduler_schedule_data", args=[schedule.pk])]
    for page in pages:
        assert client.get(page).status_code == 302
    client.force_login(staff("eve", "view_dashboard", "run_schedule"))
    for page in pages:
        assert client.get(page).status_code == 403
    client.force_login(staff("vera", "view_schedule"))
    for page in pages:
        assert client.post(page).status_code == 405
        assert client.get(page.replace(str(schedule.pk), "999999")).status_code == 404


def test_a_name_is_text_everywhere(viewer: Client) -> None:
    schedule = make_schedule(HOSTILE, every_seconds=60, lock_name="hostile")
    ran(schedule, 30, worker=HOSTILE)
    for page in (html(viewer.get(reverse(LIST))), html(viewer.get(reverse(PAGE, args=[schedule.pk])))):
        assert HOSTILE not in page and "&lt;script&gt;" in page
