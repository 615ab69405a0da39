"""Workers and beats: a word for each, what each does, and sentences where something is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.support.engine import database_now, make_schedule
from tests.support.pages import NOON, alive, ran, refused, staff, ticked, url, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client) -> Callable[..., str]:
    client.force_login(staff("viewer", "view_dashboard"))

    def fetch(**params: object) -> str:
        return client.get(url("workers_changelist", **params)).content.decode()

    return fetch


def row(html: str, name: str) -> str:
    found = re.search(rf'<tr[^>]*>\s*<th scope="row">{name}<.*?</tr>', html, re.DOTALL)
    return words(found[0]).strip() if found else ""


def test_each_process_has_a_word_and_those_gone_for_long_are_behind_a_link(
    client: Client, page: Callable[..., str]
) -> None:
    now = (database_now() - NOON).total_seconds()
    for name, ago, fields in (
        ("fine", 0, {}), ("slow", 20, {}), ("lost", 300, {}), ("left", 300, {"stopped_at": database_now()}),
        ("old", 3000, {}),
    ):  # fmt: skip
        alive(name, since=now - 4000, until=now - ago, **fields)
    html = page()
    said = {"fine": "Healthy", "slow": "Late", "lost": "Gone", "left": "Stopped"}
    assert [name for name, word in said.items() if word not in row(html, name)] == []
    assert row(html, "old") == ""
    assert "1 more is gone for longer than 15 minutes" in words(html)
    assert html.count("aegis-dimmed") == 2
    everyone = page(gone="1")
    assert "Gone" in row(everyone, "old")
    (data,) = re.findall(r'href="([^"]*)">Data', everyone)
    assert "old" in {one["name"] for one in client.get(data).json()["processes"]}


def test_what_a_worker_runs_and_did_is_shown_beside_what_it_is(page: Callable[..., str]) -> None:
    now = (database_now() - NOON).total_seconds()
    alive(
        "worker1", since=now - 60, until=now, version="0.1.0", pool="prefork", concurrency=4, queues=["a", "b"],
        clock_offset=0.002, clock_error=0.001,
    )  # fmt: skip
    schedule = make_schedule("report")
    inside = ran(ticked(schedule, now - 5, state="started", outcome=""), "worker1", now - 5, None)
    for number in range(3):
        ran(ticked(schedule, now - 100 - number), "worker1", now - 100 - number, now - 99.5 - number)
    refused(ticked(schedule, now - 50), "worker1", now - 50)
    ran(ticked(schedule, now - 40, outcome="failed"), "worker1", now - 40, now - 39, state="failed")
    ran(ticked(schedule, now - 9000), "worker1", now - 9000, now - 8999)
    html = page()
    found = row(html, "worker1")
    assert "report 3 1 1 0.1.0 +2 ms ± 1 ms" in found
    assert "prefork, 4 at once a, b" in found
    assert f"selected={inside.pk}#selected" in html


def test_nobody_there_mixed_versions_and_a_clock_that_is_off_are_told(page: Callable[..., str]) -> None:
    html = words(page())
    assert "No beat is alive: no ticks are made." in html
    assert "No worker is alive: nobody takes what is due." in html
    assert html.count("Start one: celery -A yourproject") >= 4
    now = (database_now() - NOON).total_seconds()
    alive("beat@a", "beat", since=now - 60, until=now, version="0.1.0")
    alive("worker1", since=now - 60, until=now, version="0.2.0", clock_offset=-5.0, clock_error=0.01)
    html = words(page())
    assert "No beat is alive" not in html and "No worker is alive" not in html
    assert "More than one code version is alive: 0.1.0, 0.2.0." in html
    assert "The clock of worker1 on h is -5.0 s off the database&#x27;s." in html


def test_the_number_of_queries_does_not_grow_with_the_fleet(client: Client) -> None:
    client.force_login(staff("viewer", "view_dashboard"))

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url("workers_changelist")).status_code == 200
        return len(captured)

    few = queries()
    now = (database_now() - NOON).total_seconds()
    for number in range(30):
        alive(f"worker{number}", since=now - 60, until=now)
    assert queries() == few
