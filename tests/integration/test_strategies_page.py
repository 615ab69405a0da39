"""Strategies: what each did, with intervals; observed and measured apart. And the matrix with its measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scheduler.failures import FAILURES, STRATEGIES
from scheduler.models import MeasuredRun, Schedule
from tests.support.engine import make_schedule
from tests.support.pages import AT, ran, staff, ticked, url, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client) -> Callable[..., str]:
    client.force_login(staff("viewer", "view_dashboard"))

    def fetch(name: str, **params: object) -> str:
        response = client.get(url(f"{name}_changelist", **params))
        assert response.status_code == 200
        return response.content.decode()

    return fetch


def cells(html: str, name: str) -> list[str]:
    """What a row of the first table says."""
    found = re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', html, re.DOTALL)
    assert found is not None, name
    return [words(cell).strip() for cell in re.findall(r"<td.*?</td>", found[1], re.DOTALL)]


def some_days() -> None:
    bad = make_schedule("baseline", alias="none", once_per_tick=False)
    tick = ticked(bad, -30)
    ran(tick, "worker1", -30, -20, acquire_ms=0.1)
    ran(tick, "worker2", -28, -21, acquire_ms=0.3)
    good = make_schedule("invoices", alias="redis")
    for number in range(4):
        ran(ticked(good, -100 - number), "worker1", -100 - number, -99.8 - number, acquire_ms=4 + number)
    died = ticked(good, -60, outcome="abandoned")
    ran(died, "worker1", -60, -50, state="abandoned", ran=None, heartbeat_at=None)
    ran(ticked(good, -52), "worker2", -52, -51, acquire_ms=8)


def test_each_strategy_has_counts_with_intervals_and_times(page: Callable[..., str]) -> None:
    some_days()
    html = page("strategies", at=AT, window="1h")
    assert cells(html, "none, tick guard off") == [
        "1", "0 %", "1 21 to 100 %", "0 up to 98 %", "1 21 to 100 %", "0", "0", "0.2 / 0.3 ms", "8.50 / 9.85 s",
        "no death seen",
    ]  # fmt: skip
    shown = cells(html, "redis")
    assert shown[:3] == ["6", "83.3 %", "0 up to 46 %"]
    assert shown[7] == "6.0 / 7.8 ms"


def test_what_came_after_a_death_is_told_with_how_many(page: Callable[..., str]) -> None:
    good = make_schedule("invoices", alias="redis")
    dead = ran(ticked(good, -60, outcome="abandoned"), "worker1", -60, -50, state="abandoned", ran=None)
    ran(ticked(good, -52), "worker2", -52, -51)
    assert dead.heartbeat_at is not None
    assert "8.0 s longest 8.0 s, 1 death" in words(page("strategies", at=AT, window="1h"))


def test_one_schedule_has_its_own_times_and_takeovers(page: Callable[..., str]) -> None:
    some_days()
    slow = make_schedule("slow", alias="redis", lock_name="another")
    ran(ticked(slow, -200), "worker1", -200, -160, acquire_ms=900)
    ran(ticked(slow, -150, outcome="abandoned"), "worker1", -150, -140, state="abandoned", ran=None)
    ran(ticked(slow, -130), "worker2", -130, -90, acquire_ms=900)
    assert cells(page("strategies", at=AT, window="1h"), "redis")[7] != "900.0 / 900.0 ms"
    shown = cells(page("strategies", at=AT, window="1h", schedule=slow.pk), "redis")
    assert shown[7:] == ["900.0 / 900.0 ms", "40.00 / 40.00 s", "20.0 s longest 20.0 s, 1 death"]
    other = Schedule.objects.get(name="baseline")
    assert cells(page("strategies", at=AT, window="1h", schedule=other.pk), "none, tick guard off")[9] == (
        "no death seen"
    )


def test_a_bar_leads_to_the_tries_of_its_strategy(page: Callable[..., str]) -> None:
    some_days()
    leads = re.findall(r'href="(/[^"]*timeline/[^"]*from=[^"]*)"', page("strategies", at=AT))
    assert {parse_qs(urlsplit(unescape(link)).query).get("strategy", [""])[0] for link in leads} == {"none"}


def test_strips_are_here_and_on_the_same_scales(page: Callable[..., str]) -> None:
    some_days()
    html = words(page("strategies", at=AT, window="1h"))
    assert "1 of 1 ticks collided: 1 proven overlap, 1 duplicate." in html
    assert "redis 0 of 6 ticks (95 % bound 46 %) collided." in html


def soak(**changes: Any) -> dict[str, Any]:
    """What ``aegis soak --output`` writes, as far as it is read."""
    cell = {
        "fault": "kill", "strategy": "redis", "injected": 3, "bodies_hit": 2, "duplicates": 0, "overlaps": 0,
        "stale_effects": 0, "missed": 4, "lost": 1, "alone": 0, "broken_promises": 0,
    }  # fmt: skip
    return {
        "schema": "aegis.soak.1", "at": "2026-11-30T02:00:00+00:00", "version": "0.1.0", "commit": "abc", "seed": 7,
        "ticks": 1500, "seconds": 70.5, "workers": 4, "beats": 2, "tick_guard": True, "commit_guard": True,
        "strategies": {"redis": {"ticks": 200, "takeovers": 2, "takeover_p99_s": 5.2}},
        "matrix": [{**cell, **one} for one in changes.pop("cells", [{}])],
        **changes,
    }  # fmt: skip


def load(tmp_path: Path, told: Any) -> str:
    path = tmp_path / "soak.json"
    path.write_text(told if isinstance(told, str) else json.dumps(told))
    out = StringIO()
    call_command("aegis", "matrix", "load", str(path), stdout=out)
    return out.getvalue()


def test_measured_and_observed_are_two_sections(page: Callable[..., str], tmp_path: Path) -> None:
    some_days()
    html = page("strategies", at=AT, window="1h")
    assert "No run was loaded" in html
    load(tmp_path, soak())
    html = page("strategies", at=AT, window="1h")
    observed, measured = html.split('id="measured"')
    assert "1,500 ticks" not in observed
    assert cells(measured, "redis") == ["200", "3", "2", "0", "2", "5.2 s", "0"]
    assert "1,500 ticks in 70 s, 4 workers, 2 beats, seed 7, version 0.1.0 (abc)" in measured


def test_a_file_is_stored_once_and_listed(tmp_path: Path) -> None:
    assert "stored: soak of 2026-11-30 02:00 UTC, 1,500 ticks, seed 7" in load(tmp_path, soak())
    assert "was stored already" in load(tmp_path, soak())
    assert MeasuredRun.objects.count() == 1
    out = StringIO()
    call_command("aegis", "matrix", "list", stdout=out)
    assert "seed 7, version 0.1.0, commit abc" in out.getvalue()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("{", "It is not JSON"),
        ("[" * 100_000, "It is not JSON"),
        ('{"schema": NaN}', "NaN is not a number of JSON"),
        ("[]", "is None, not"),
        ({"schema": "x"}, "is 'x', not 'aegis.soak.1'"),
        (soak(at="yesterday"), "not an instant"),
        (soak(at="9999-12-31T23:59:59-12:00"), "not an instant"),
        (soak(strategies={"redis": {"ticks": "many", "takeovers": 0, "takeover_p99_s": None}}), "wrong kind"),
        (soak(cells=[{"missed": "many"}]), "wrong kind"),
        ({k: v for k, v in soak().items() if k != "seed"}, "missing or of a wrong kind: 'seed'"),
    ],
)
def test_another_file_is_refused_and_nothing_of_it_is_stored(tmp_path: Path, told: Any, why: str) -> None:
    with pytest.raises(CommandError, match=re.escape(why)):
        load(tmp_path, told)
    assert not MeasuredRun.objects.exists()


def matrix_cell(html: str, key: str, strategy: str) -> str:
    row = re.search(rf'<tr id="{key}">(.*?)</tr>', html, re.DOTALL)
    assert row is not None
    found = re.findall(r"<td.*?</td>", row[1], re.DOTALL)
    return words(found[STRATEGIES.index(strategy)]).strip()


def test_every_cell_says_what_is_documented_and_what_was_not_tested(page: Callable[..., str]) -> None:
    html = page("failurematrix")
    assert html.count("Not tested") == len(FAILURES) * len(STRATEGIES)
    assert "Nothing was measured here yet" in html
    assert matrix_cell(html, "killed", "redis") == "Covered next run after the TTL Not tested"
    for failure in FAILURES:
        for strategy in STRATEGIES:
            assert matrix_cell(html, failure.key, strategy).startswith(failure.cells[strategy].answer.value)


def test_a_project_of_others_is_told_of_no_verb_that_it_lacks(
    page: Callable[..., str], settings: Any, tmp_path: Path
) -> None:
    runs = re.compile(r"manage\.py aegis soak")
    assert runs.search(page("failurematrix")) and runs.search(page("strategies"))
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "aegis_site.soak"]
    for name in ("failurematrix", "strategies"):
        assert not runs.search(page(name)) and "manage.py aegis matrix load" in page(name)
    load(tmp_path, soak(cells=[{}]))
    assert not runs.search(page("failurematrix")) and "1,500 ticks in 70 s" in page("failurematrix")


def test_a_measured_cell_stands_beside_the_documented_one_with_its_conditions(
    page: Callable[..., str], tmp_path: Path
) -> None:
    load(
        tmp_path,
        soak(cells=[{}, {"fault": "pause", "overlaps": 5, "alone": 5}, {"fault": "pause", "strategy": "none"}]),
    )
    html = page("failurematrix")
    held = "Covered next run after the TTL 3 faults: held 2 bodies hit, 4 fire times missed, 1 ended early"
    assert matrix_cell(html, "killed", "redis") == held
    assert "3 faults: 5 overlaps" in matrix_cell(html, "frozen", "redis")
    assert "Mismatch" not in html
    assert "1,500 ticks in 70 s, 4 workers, 2 beats, seed 7" in html
    assert "manage.py aegis soak --ticks 1500 --workers 4 --beats 2 --seed 7 --output FILE" in html
    assert "there is no measured run 999" in page("failurematrix", run="999") and "no measured run" not in html


@pytest.mark.parametrize("harm", [{"overlaps": 2, "alone": 1}, {"broken_promises": 1}])
def test_what_was_measured_against_what_is_documented_is_loud(
    page: Callable[..., str], tmp_path: Path, harm: dict[str, int]
) -> None:
    load(tmp_path, soak(cells=[harm]))
    html = page("failurematrix")
    assert "Mismatch. 3 faults" in matrix_cell(html, "killed", "redis")
    assert "Measured against what is documented: a worker is killed in the middle, redis" in html
    assert html.count("aegis-mismatch") == 1


def test_a_finding_that_another_fault_explains_as_well_is_no_mismatch(
    page: Callable[..., str], tmp_path: Path
) -> None:
    load(tmp_path, soak(cells=[{"overlaps": 2, "alone": 0}]))
    html = page("failurematrix")
    assert "3 faults: 2 overlaps" in matrix_cell(html, "killed", "redis")
    assert "each with another fault near" in html
    assert "Mismatch" not in html


def test_an_older_run_can_be_chosen(client: Client, page: Callable[..., str], tmp_path: Path) -> None:
    load(tmp_path, soak())
    load(tmp_path, soak(at="2026-12-01T02:00:00+00:00", seed=8))
    assert "seed 8, version" in page("failurematrix")
    older = MeasuredRun.objects.get(seed=7)
    shown = page("failurematrix", run=older.pk)
    assert "seed 7, version" in shown
    (data,) = re.findall(r'href="([^"]*)">Data', shown)
    assert "seed 7, version" in client.get(data).json()["run"]["conditions"]
    assert "is not a number" in page("failurematrix", run="x")


@pytest.mark.parametrize("name", ["strategies", "failurematrix"])
def test_the_number_of_queries_does_not_grow_with_the_rows(client: Client, name: str, tmp_path: Path) -> None:
    client.force_login(staff("viewer", "view_dashboard"))
    some_days()
    load(tmp_path, soak())

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url(f"{name}_changelist", at=AT, window="1h")).status_code == 200
        return len(captured)

    few = queries()
    for number in range(20):
        ran(ticked(make_schedule(f"more-{number}", alias="database"), -40 - number), "w", -40 - number, -39 - number)
        load(tmp_path, soak(seed=100 + number, cells=[{}, {"fault": "pause"}, {"fault": "partition"}]))
    assert queries() == few
