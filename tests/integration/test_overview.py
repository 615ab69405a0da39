"""The overview: tiles that lead to what they count, what needs attention, what comes next, what it cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.test import Client
from django.urls import reverse

from aegis_site.demo.models import Effect
from scheduler.charts import Window
from scheduler.dashboard import params, schedule_table
from scheduler.dashboard.impact import Impact
from scheduler.models import Schedule, Tick
from tests.support.engine import database_now, make_schedule
from tests.support.pages import AT, NOON, alive, moment, ran, refused, staff, ticked, url, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(staff("viewer", "view_dashboard", "view_tick", "view_execution", "view_schedule"))
    return client


@pytest.fixture
def overview(viewer: Client) -> Callable[..., str]:
    def fetch(**params: object) -> str:
        response = viewer.get(url("dashboard_changelist", **params))
        assert response.status_code == 200
        return response.content.decode()

    return fetch


def tile(html: str, label: str) -> tuple[str, str]:
    """The figure of a tile and where it leads."""
    found = re.search(rf"{label}</span>\s*<span class=\"aegis-tile-value\">(.*?)</span>", html, re.DOTALL)
    assert found is not None, label
    leads = re.search(r'href="([^"]*)"', found[1])
    return words(found[1]).strip(), unescape(leads[1]) if leads else ""


def test_the_worst_schedules_are_drawn_and_all_are_summed(
    viewer: Client, overview: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_table, "MOST", 3)
    bad = ticked(make_schedule("middle", alias="none", once_per_tick=False), -30)
    for worker in ("worker1", "worker2"):
        ran(bad, worker, -30, -20)
    ticked(make_schedule("amissed"), -40, state="misfired", outcome="misfired", reason="late", missed_count=7)
    for number, name in enumerate(("b", "c", "zoo")):
        schedule = make_schedule(name)
        for again in range(1 + number):
            ran(ticked(schedule, -60 - 10 * again), "worker1", -60 - 10 * again, -59 - 10 * again)
    html = overview(window="1h", at=AT)
    table = html[html.index("Figures by schedule") :]
    assert re.findall(r'<th scope="row">(?:<a[^>]*>)?([^<]+)', table)[:4] == ["amissed", "middle", "zoo", "All"]
    assert "These are the 3 with the most trouble, and 2 more are in the sums." in words(table)
    assert f'href="{reverse("admin:aegis_scheduler_schedule_changelist")}">All schedules' in table
    told = viewer.get(url("dashboard_data", window="1h", at=AT)).json()
    assert ([one["name"] for one in told["schedules"]], told["more_schedules"]) == (
        ["amissed", "middle", "zoo"],
        2,
    )
    assert told["total"]["ticks"] == 8
    monkeypatch.setattr(schedule_table, "MOST", 5)
    assert "more are in the sums" not in overview(window="1h", at=AT)


def endings() -> None:
    schedule = make_schedule("report", alias="redis")
    for number, outcome in enumerate(("lost", "failed", "abandoned", "executed", "executed")):
        ran(ticked(schedule, -50 + number, outcome=outcome), "worker1", -50 + number, -49.9 + number)
    ticked(schedule, -40, state="misfired", outcome="misfired", reason="late", missed_count=7)
    ticked(schedule, -39, outcome="blocked", reason="store down")
    refused(ticked(schedule, -38), "worker2", -38)
    refused(ticked(make_schedule("other"), -37), "worker2", -37, "duplicate")


@pytest.mark.parametrize(
    ("label", "value", "rows"),
    [
        ("Lost lease", "1", 1),
        ("Failed", "2", 2),
        ("Missed", "7", 1),
        ("Blocked", "1", 1),
        ("Second runs prevented", "2", 2),
        ("Ran once", "44.4 %", 4),
    ],
)
def test_a_tile_leads_to_the_rows_that_it_counts(
    viewer: Client, overview: Callable[..., str], label: str, value: str, rows: int
) -> None:
    endings()
    shown, leads = tile(overview(at=AT, window="1h"), label)
    assert shown == value
    answer = viewer.get(leads)
    assert answer.status_code == 200, leads
    assert answer.context["cl"].result_count == rows


def test_a_tile_of_one_schedule_leads_to_its_rows_only(viewer: Client, overview: Callable[..., str]) -> None:
    endings()
    other = Schedule.objects.get(name="other")
    _, leads = tile(overview(at=AT, window="1h", schedule=other.pk), "Second runs prevented")
    assert viewer.get(leads).context["cl"].result_count == 1


def test_who_may_not_see_the_lists_gets_no_links_to_them(client: Client) -> None:
    endings()
    client.force_login(staff("narrow", "view_dashboard"))
    html = client.get(url("dashboard_changelist", at=AT, window="1h")).content.decode()
    assert tile(html, "Lost lease") == ("1", "")
    assert "/tick/?" not in html


def attention(html: str) -> list[str]:
    found = re.search(r'<ol class="aegis-attention">(.*?)</ol>', html, re.DOTALL)
    return [words(item).strip() for item in re.findall(r"<li.*?</li>", found[1], re.DOTALL)] if found else []


def test_what_needs_attention_is_ranked_and_each_leads_somewhere(overview: Callable[..., str]) -> None:
    endings()
    bad = make_schedule("baseline", alias="none")
    ran(ticked(bad, -30), "worker1", -30, -20)
    ran(ticked(bad, -28), "worker2", -28, -21)
    html = overview(at=AT, window="1h")
    found = attention(html)
    starts = [
        "baseline : 1 proven overlap, strategy none.",
        "Beat : never heard. No ticks are made until one runs.",
        "Workers : none is alive. Nobody takes what is due.",
        "report : 7 fire times missed.",
        "report : 1 run ended as failed.",
        "report : 1 run ended as lost.",
        "report : 1 run ended as abandoned.",
        "report : 1 tick blocked: the lock store did not answer, or a guard was open.",
    ]
    assert [item[: len(start)] for item, start in zip(found, starts, strict=True)] == starts
    items = re.findall(r"<li class=\"aegis-tone.*?</li>", html, re.DOTALL)
    assert all("href=" in item for item in items if "aegis-tile" not in item)


def test_a_collision_is_shown_without_those_of_other_schedules(viewer: Client, overview: Callable[..., str]) -> None:
    for name, later in (("baseline", 0), ("other", 1)):
        schedule = make_schedule(name, alias="none")
        ran(ticked(schedule, -30 + later), f"{name}-worker1", -30 + later, -20)
        ran(ticked(schedule, -28 + later), f"{name}-worker2", -28 + later, -21)
    html = overview(at=AT, window="1h")
    leads = {name: unescape(url) for name, url in re.findall(r'<b>(\w+)</b>.*?<a href="([^"]*)"', html)}
    page = words(viewer.get(leads["baseline"]).content.decode())
    assert "baseline-worker1" in page and "other-worker1" not in page


def test_strategies_that_were_changed_are_not_accused_of_what_was_before(overview: Callable[..., str]) -> None:
    schedule = make_schedule("baseline", alias="none")
    ran(ticked(schedule, -30), "worker1", -30, -20)
    ran(ticked(schedule, -28), "worker2", -28, -21)
    ran(ticked(schedule, -10, lock_alias="database"), "worker1", -10, -9)
    found = attention(overview(at=AT, window="1h"))
    assert "1 proven overlap, strategies in this window: database, none." in found[0]


def test_a_body_whose_process_is_gone_a_tight_lease_and_two_versions_need_attention(
    overview: Callable[..., str],
) -> None:
    now = (database_now() - NOON).total_seconds()
    ran(ticked(make_schedule("gone"), now - 60, state="started", outcome=""), "worker1", now - 60, None)
    tight = make_schedule("tight", alias="optimistic", ttl=10)
    for number in range(6):
        ran(ticked(tight, now - 600 + 20 * number), "worker1", now - 600 + 20 * number, now - 590.5 + 20 * number)
    for version in ("0.1.0", "0.2.0"):
        alive(f"worker-{version}", since=now - 60, until=now, version=version)
    alive("beat", "beat", since=now - 60, until=now, version="0.1.0")
    found = attention(overview(window="1h"))
    assert re.match(r"gone : execution \d+ runs, but its process worker1 has not been heard of for", found[0])
    assert "its lease of 10 s is not renewed, and 19 of 20 runs end within 9.5 s: 5% left" in found[1]
    assert "Versions : more than one is running: 0.1.0, 0.2.0." in found[2]
    assert len(found) == 3


def test_a_body_that_beats_and_a_lease_that_is_renewed_need_none(overview: Callable[..., str]) -> None:
    now = (database_now() - NOON).total_seconds()
    tick = ticked(make_schedule("long", alias="database"), now - 60, state="started", outcome="")
    ran(tick, "worker1", now - 60, None, heartbeat_at=database_now(), token=88)
    for kind in ("worker", "beat"):
        alive(kind, kind, since=now - 60, until=now)
    html = overview(window="1h")
    assert attention(html) == []
    assert "Nothing. No proven overlap or duplicate" in html
    assert re.search(
        r"Lock held longest: lock\.long by worker1, token 88, database, for (59|6\d) s|1 min", words(html)
    )


def test_the_next_ticks_come_in_order_and_a_paused_one_says_so(overview: Callable[..., str]) -> None:
    now = database_now()
    for number in range(12):
        make_schedule(f"job-{number:02}", alias="redis")
        at = now + timedelta(seconds=100 + 60 * number)
        Schedule.objects.filter(name=f"job-{number:02}").update(next_fire_at=at)
    Schedule.objects.filter(name="job-01").update(paused_at=now, pause_reason="x")
    Schedule.objects.filter(name="job-02").update(broken_reason="x")
    Schedule.objects.filter(name="job-03").update(enabled=False)
    html = overview()
    table = html[html.index('id="next-ticks"') :]
    assert re.findall(r">(job-\d\d)</a>", table) == [f"job-{n:02}" for n in (0, 4, 5, 6, 7, 8, 9, 10, 11, 1)]
    assert "Paused, no tick is made: job-01 until it is resumed." in words(table)
    leads = re.findall(r'<a href="([^"]*)">job-00</a>', table)
    assert leads == [reverse("admin:aegis_scheduler_schedule_page", args=[Schedule.objects.get(name="job-00").pk])]


# Impact


def settle(subject: str, at: float, cents: int, schedule: str = "baseline") -> None:
    Effect.objects.create(
        kind=Effect.Kind.SETTLEMENT, schedule=schedule, subject=subject, amount_cents=cents, resource="r",
        worker="w", entered_at=moment(at), left_at=moment(at),
    )  # fmt: skip


def test_the_demo_says_what_was_paid_twice(overview: Callable[..., str]) -> None:
    ticked(make_schedule("baseline"), -30)
    for subject in ("a", "a", "a", "b", "b", "c"):
        settle(subject, -30, 41_000)
    settle("a", -30, 999, schedule="good")
    settle("c", -9_000, 1)
    html = words(overview(at=AT, window="1h"))
    assert "Harm: Invoices settled twice: 3, 1,230.00 too much (schedule baseline)." in html


def test_what_happened_once_only_is_said_as_well(overview: Callable[..., str]) -> None:
    settle("a", -30, 41_000)
    assert "None of 1 invoices settled was done twice." in overview(at=AT, window="1h")


def failing(window: Window) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM there_is_no_such_table")
    yield "never"


def slow(window: Window) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(30)")
    yield "never"


def writing(window: Window) -> Iterator[Impact]:
    Schedule.objects.update(notes="written")
    yield Impact("<b>bold</b>" * 50, bad=True)


@pytest.mark.parametrize("name", ["failing", "slow", "no_such_function"])
def test_a_function_that_fails_or_takes_its_time_costs_its_sentences_and_not_the_page(
    overview: Callable[..., str], settings: Any, name: str
) -> None:
    settings.AEGIS = {"IMPACT": f"{__name__}.{name}"}
    make_schedule("nightly")
    html = overview()
    assert "The figures of AEGIS[&#x27;IMPACT&#x27;] are missing: it failed" in html
    assert "Next ticks" in html


def test_what_the_function_writes_is_undone_and_what_it_says_is_text(
    overview: Callable[..., str], settings: Any
) -> None:
    settings.AEGIS = {"IMPACT": f"{__name__}.writing"}
    make_schedule("nightly")
    html = overview()
    assert "&lt;b&gt;bold" in html
    assert "<b>bold" not in html
    assert Schedule.objects.get().notes == ""


@pytest.mark.parametrize("path", ["nowhere.at_all", "no dots", "tests.support.pages.NOON", 7])
def test_a_path_that_leads_to_no_function_is_told_by_a_check(settings: Any, path: Any) -> None:
    settings.AEGIS = {"IMPACT": path}
    assert "aegis.scheduler.E030" in {message.id for message in run_checks(tags=["aegis"])}
    settings.AEGIS = {"IMPACT": f"{__name__}.slow"}
    assert "aegis.scheduler.E030" not in {message.id for message in run_checks(tags=["aegis"])}


def test_what_needs_attention_without_a_schedule_leads_to_its_own_ticks(
    viewer: Client, overview: Callable[..., str]
) -> None:
    kept, gone = make_schedule("kept"), make_schedule("gone")
    for schedule in (kept, gone):
        ticked(schedule, -40, state="misfired", outcome="misfired", reason="late", missed_count=7)
        ticked(schedule, -30, outcome="blocked", reason="store down")
    call = ticked(gone, -20, outcome="blocked", reason="store down")
    gone.delete()
    Tick.objects.filter(pk=call.pk).update(schedule_name="", task="shop.tasks.send")
    html = overview(at=AT, window="1h")
    for what, said in (("gone", "7 fire times missed"), ("gone", "1 tick blocked"), ("shop.tasks.send", "1 tick")):
        (leads,) = re.findall(rf'<b>{what}</b>: {said}[^<]*</span> <a href="([^"]*)"', html)
        answer = viewer.get(unescape(leads))
        assert answer.status_code == 200
        assert [tick.schedule_name or tick.task for tick in answer.context["cl"].result_list] == [what]


def test_a_schedule_beyond_those_offered_can_be_chosen(
    overview: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(params, "MOST_CHOICES", 2)
    *_, last = [make_schedule(f"job-{number}") for number in range(3)]
    ticked(last, -30)
    html = overview(at=AT, window="1h", schedule=last.pk)
    assert "There is no schedule" not in html
    assert f'<option value="{last.pk}" selected>job-2' in html
    for nobody in ("999", "x", "9" * 30):
        assert f"There is no schedule {nobody}" in overview(at=AT, window="1h", schedule=nobody)


def test_who_holds_a_lock_is_said_of_runs_only(overview: Callable[..., str]) -> None:
    """No store is asked here: code outside of any run may hold one."""
    html = overview()
    assert "No run holds a lock now." in html
    assert "No lock is held" not in html


def test_headroom_is_of_the_schedules_own_runs_and_the_list_says_the_same(
    viewer: Client, overview: Callable[..., str]
) -> None:
    now = (database_now() - NOON).total_seconds()
    quick = make_schedule("quick", alias="optimistic", ttl=30, lock_name="shared")
    slow = make_schedule("slow", alias="optimistic", ttl=30, lock_name="shared")
    for number in range(6):
        for schedule, took, at in ((quick, 1, now - 600), (slow, 25, now - 590)):
            ran(ticked(schedule, at + 40 * number), "worker1", at + 40 * number, at + 40 * number + took)
    for kind in ("worker", "beat"):
        alive(kind, kind, since=now - 60, until=now)
    (said,) = attention(overview(window="1h"))
    assert "slow : its lease of 30 s is not renewed, and 19 of 20 runs end within 25.0 s: 17% left" in said
    shown = words(viewer.get(url("schedule_changelist")).content.decode())
    assert "17% !" in shown and "97%" in shown


def test_a_tight_lease_is_seen_however_many_schedules_renew_theirs(overview: Callable[..., str]) -> None:
    now = (database_now() - NOON).total_seconds()
    model = make_schedule("renewed-0")
    Schedule.objects.bulk_create(
        Schedule(name=f"renewed-{number}", task=model.task, lock=model.lock, once_at=model.once_at)
        for number in range(1, 201)
    )
    tight = make_schedule("tight", alias="optimistic", ttl=10)
    for number in range(6):
        ran(ticked(tight, now - 600 + 20 * number), "worker1", now - 600 + 20 * number, now - 590.5 + 20 * number)
    assert any("tight : its lease of 10 s is not renewed" in said for said in attention(overview(window="1h")))
