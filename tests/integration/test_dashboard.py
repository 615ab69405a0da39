"""The dashboard's pages on real rows: who may see them, what they say, how much they ask the database."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from html import unescape
from io import StringIO
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from scheduler.dashboard import rows, tries
from scheduler.models import Dashboard, Execution, Schedule, ScheduleChange, Tick
from tests.support import pages
from tests.support.engine import database_now, make_schedule
from tests.support.pages import AT, NOON, alive, moment, refused, staff, ticked, url, words

pytestmark = pytest.mark.django_db

TITLES = {
    "dashboard": "Overview",
    "timeline": "Timeline",
    "strategies": "Strategies",
    "failurematrix": "Failure matrix",
    "workers": "Workers and beats",
}
PAGES = tuple(f"{name}_{view}" for name in TITLES for view in ("changelist", "data"))
HOSTILE = "<script>alert('&')</script>"
SECRET = "hunter2"  # what a task was given, and what it raised

ran = partial(pages.ran, error=SECRET)

# A page's queries, whatever it shows: session and user, the page's own, and a few to spare.
MOST_QUERIES = 30


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(staff("viewer", "view_dashboard"))
    return client


@pytest.fixture
def page(viewer: Client) -> Callable[..., str]:
    def fetch(name: str, **params: object) -> str:
        response = viewer.get(url(f"{name}_changelist", **params))
        assert response.status_code == 200
        return response.content.decode()

    return fetch


@pytest.fixture
def data(viewer: Client) -> Callable[..., dict[str, Any]]:
    def fetch(name: str, **params: object) -> dict[str, Any]:
        found: dict[str, Any] = viewer.get(url(f"{name}_data", **params)).json()
        return found

    return fetch


def collide() -> tuple[Execution, Execution]:
    """Two bodies of one unguarded tick, inside at once without a lock; and a clean schedule beside them."""
    bad = make_schedule("baseline", alias="none", once_per_tick=False, kwargs={"password": SECRET})
    tick = ticked(bad, -30)
    first, second = ran(tick, "worker1", -30, -20), ran(tick, "worker2", -28, -21)
    good = make_schedule("invoices", alias="redis")
    clean = ticked(good, -30)
    holder = ran(clean, "worker1", -30, -29, token=41)
    refused(clean, "worker2", -29.5, holder=holder)
    refused(clean, "worker2", -29, "duplicate")
    return first, second


# Who may see them


@pytest.mark.parametrize("name", PAGES)
def test_strangers_log_in_and_staff_without_the_permission_is_refused(client: Client, name: str) -> None:
    response = client.get(url(name))
    assert response.status_code == 302
    assert response["Location"].startswith(f"{reverse('admin:login')}?next=/admin/aegis_scheduler/")
    client.force_login(staff("clerk", "view_schedule", "view_execution"))
    assert client.get(url(name)).status_code == 403


@pytest.mark.parametrize("name", PAGES)
def test_who_has_the_permission_reads_and_cannot_post(viewer: Client, name: str) -> None:
    assert viewer.get(url(name)).status_code == 200
    assert viewer.post(url(name)).status_code == 405


def test_the_index_links_to_the_pages_for_those_who_may_see_them(client: Client) -> None:
    client.force_login(staff("clerk", "view_schedule"))
    links = [reverse(f"admin:aegis_scheduler_{name}_changelist") for name in TITLES]
    assert not [link for link in links if f'href="{link}"' in client.get("/admin/").content.decode()]
    client.force_login(staff("viewer", "view_dashboard"))
    index = client.get("/admin/").content.decode()
    assert [link for link in links if f'href="{link}"' in index] == links


def test_a_model_without_a_table_is_in_nobodys_way() -> None:
    make_schedule("nightly")
    kept = StringIO()
    call_command("dumpdata", "aegis_scheduler", "--all", stdout=kept)
    assert {row["model"] for row in json.loads(kept.getvalue())} == {
        "aegis_scheduler.lockname",
        "aegis_scheduler.schedule",
    }
    assert not Dashboard.objects.exists()


# Form


@pytest.mark.parametrize("name", list(TITLES))
def test_nothing_is_inline_and_the_headings_are_in_order(page: Callable[..., str], name: str) -> None:
    first, _ = collide()
    html = page(name, at=AT, selected=first.pk)
    assert "style=" not in html
    assert not re.search(r"<script(?![^>]*\bsrc=)", html)
    assert not re.search(r"<[^>]+\son\w+=", html)
    levels = [int(level) for level in re.findall(r"<h([1-6])", html)]
    assert levels.count(1) == 1
    shown = levels[levels.index(1) :]
    assert all(after - before <= 1 for before, after in pairwise(shown))
    crumbs = re.search(r'class="breadcrumbs">(.*?)</div>', html, re.DOTALL)
    assert crumbs is not None
    assert words(crumbs[1]).split(" &rsaquo; ") == [" Home", "Aegis", f"{TITLES[name]} "]
    assert "<time datetime=" in html


@pytest.mark.parametrize("name", ["dashboard", "timeline"])
def test_user_text_stays_text_and_nothing_secret_is_shown(viewer: Client, name: str) -> None:
    schedule = make_schedule(HOSTILE, alias="none", lock_name="hostile", once_per_tick=False, kwargs={"key": SECRET})
    tick = ticked(schedule, -30)
    first = ran(tick, HOSTILE, -30, -20, reason=HOSTILE, state="lost")
    ran(tick, "worker2", -28, -21)
    refused(tick, HOSTILE, -25, "blocked")
    ScheduleChange.objects.create(
        schedule=schedule, schedule_name=HOSTILE, before={"strategy": HOSTILE}, after={"strategy": "none"}
    )
    ScheduleChange.objects.update(changed_at=moment(-29))
    for view in ("changelist", "data"):
        answer = viewer.get(url(f"{name}_{view}", at=AT, window="5m", selected=first.pk)).content.decode()
        assert SECRET not in answer
        if view == "changelist":
            assert HOSTILE not in answer
            assert escape(HOSTILE) in answer


# Overview


def test_the_figures_agree_in_tiles_chart_table_and_data(
    page: Callable[..., str], data: Callable[..., dict[str, Any]]
) -> None:
    collide()
    html = words(page("dashboard", at=AT))
    assert "Overlaps, proven 1 two or more were inside at once, in 1 of 2 ticks" in html
    assert "Duplicates 1 the same tick ran again, in 1 of 2 ticks" in html
    assert "Overlaps, possible 0 0 of 2 ticks (95 % bound 85 %)" in html
    assert "Second runs prevented 2 1 by a lock, 1 by the tick guard" in html
    assert "2 ticks: 1 ran once, 1 overlap." in html
    found = data("dashboard", at=AT)
    assert found["total"]["outcomes"] == {"executed": 1, "overlap": 1}
    by_name = {schedule["name"]: schedule for schedule in found["schedules"]}
    assert (by_name["baseline"]["overlaps_proven"], by_name["baseline"]["duplicates"]) == (1, 1)
    assert (by_name["invoices"]["prevented_by_lock"], by_name["invoices"]["prevented_by_tick_guard"]) == (1, 1)
    assert sum(count["overlap"] for count in found["ticks"] if "overlap" in count) == 1


def test_the_window_is_the_shortest_that_holds_a_tick(page: Callable[..., str]) -> None:
    ticked(make_schedule(), -7200)
    assert 'aria-current="true">6h' in page("dashboard", at=AT)
    assert 'aria-current="true">24h' in page("dashboard")
    assert 'aria-current="true">7d' in page("dashboard", window="7d")


def test_many_ticks_without_a_collision_show_the_bound(page: Callable[..., str]) -> None:
    schedule = make_schedule()
    model = ticked(schedule, -1)
    copies = []
    for number in range(2399):
        model.pk, model.fire_time = None, moment(-2 - number)
        copies.append(Tick(**{f.attname: getattr(model, f.attname) for f in Tick._meta.concrete_fields}))
    Tick.objects.bulk_create(copies)
    assert "0 of 2,400 ticks (95 % bound 0.16 %)" in page("dashboard", at=AT, window="1h")


def test_one_schedule_can_be_chosen_and_an_unknown_one_is_told(page: Callable[..., str]) -> None:
    collide()
    good = Schedule.objects.get(name="invoices")
    html = page("dashboard", at=AT, schedule=good.pk)
    assert f'<option value="{good.pk}" selected>' in html
    assert "Overlaps, proven 0 0 of 1 ticks" in words(html)
    assert "There is no schedule 999" in page("dashboard", at=AT, schedule=999)


def test_a_change_of_strategy_marks_the_chart(page: Callable[..., str]) -> None:
    schedule = make_schedule("invoices")
    ticked(schedule, -60)
    change = ScheduleChange.objects.create(
        schedule=schedule, schedule_name="invoices", before={"strategy": "none"}, after={"strategy": "redis"},
        changed_by=staff("ana"),
    )  # fmt: skip
    ScheduleChange.objects.filter(pk=change.pk).update(changed_at=moment(-50))
    assert "invoices: strategy none → redis (ana)" in page("dashboard", at=AT)


def test_a_window_that_holds_too_much_is_cut_and_says_so(
    page: Callable[..., str], data: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = make_schedule(alias="none")
    for number in range(6):
        ran(ticked(schedule, -10 * (number + 1)), "worker1", -10 * (number + 1), -10 * number + 1)
    monkeypatch.setattr(rows, "MOST_TICKS", 4)
    assert "these figures begin at 11:59:20" in page("dashboard", at=AT)
    assert data("dashboard", at=AT)["total"]["ticks"] == 4
    monkeypatch.setattr(rows, "MOST_BODIES", 2)
    assert "these figures begin at 11:59:40" in page("dashboard", at=AT)
    assert data("dashboard", at=AT)["total"]["ticks"] == 2


# Timeline


def test_an_overlap_names_its_parties_and_its_cause(page: Callable[..., str]) -> None:
    first, second = collide()
    html = page("timeline", at=AT, **{"from": "2027-03-27T11:59:00Z", "to": AT})
    assert "baseline: overlap 11:59:32 to 11:59:39 proven, worker1 and worker2, cause: no lock" in html
    tree = ElementTree.fromstring(re.search(r"<svg class=\"aegis-chart\".*?</svg>", html, re.DOTALL)[0])  # type: ignore[index]
    hatched = [rect for rect in tree.iter("rect") if "bad-hatch" in (rect.get("fill") or "")]
    starts = {(float(rect.get("x", 0)), float(rect.get("width", 0))) for rect in hatched}
    assert len(hatched) == 3, "both bars and the lane of overlaps"
    assert len(starts) == 1, "they lie below each other"
    assert "baseline on worker1: duplicate, 11:59:30 to 11:59:40" in html
    assert "invoices on worker1: ran once, 11:59:30 to 11:59:31" in html
    chosen = words(page("timeline", at=AT, selected=second.pk))
    assert "worker2 was inside together with worker1 from 11:59:32.000 to 11:59:39.000" in chosen
    assert "Cause: no lock; this strategy excludes nothing" in chosen
    assert "Duplicate: worker2 ran the tick of worker1, attempt 1. Cause: tick guard off" in chosen
    assert "Overlap: baseline" in words(page("timeline", at=AT, selected=first.pk))


def test_the_mark_that_is_told_below_is_marked_in_the_chart(page: Callable[..., str]) -> None:
    collide()
    for one in Execution.objects.all():
        html = page("timeline", at=AT, selected=one.pk, **{"from": "2027-03-27T11:59:00Z", "to": AT})
        current = re.findall(r'<a href="([^"]*)" aria-current="true">', html)
        assert [unescape(url).rpartition("selected=")[2] for url in current] == [f"{one.pk}#selected"]
    assert "aria-current" not in page("timeline", at=AT).split('class="aegis-chart"')[1]


def test_an_overlap_outside_of_the_window_is_told_as_well(page: Callable[..., str]) -> None:
    far = {"from": "2027-03-27T11:00:00Z", "to": "2027-03-27T11:01:00Z"}
    for one in collide():
        near, away = (words(page("timeline", at=AT, selected=one.pk, **asked)) for asked in ({}, far))
        for said in ("Overlap, proven", "was inside together with", "Duplicate:"):
            assert said in near and said in away
        assert "Nobody else was inside" not in away
    alone = ran(ticked(make_schedule("alone"), -3000), "worker1", -3000, -2990)
    assert "Nobody else was inside" in page("timeline", at=AT, selected=alone.pk)


def test_tokens_are_named_where_there_are_some(page: Callable[..., str]) -> None:
    schedule = make_schedule("report", alias="redis")
    ran(ticked(schedule, -30), "worker1", -30, -20, token=910, state="lost")
    ran(ticked(schedule, -25), "worker2", -25, -15, token=911)
    html = page("timeline", at=AT)
    assert "worker1 token 910 and worker2 token 911, cause: the lease ended before the body did" in html


def test_every_worker_has_a_lane_and_the_idle_one_too(
    page: Callable[..., str], data: Callable[..., dict[str, Any]]
) -> None:
    collide()
    alive("idle")
    alive("gone", until=-3000)
    alive("left", stopped_at=moment(-3000), until=-3000)
    alive("beat", "beat")
    assert data("timeline", at=AT)["workers"] == ["idle"]
    html = page("timeline", at=AT)
    lanes = re.findall(r'<text class="aegis-lane"[^>]*><title>([^<]*)</title>', html)
    assert lanes == ["idle", "worker1", "worker2"]
    assert ">idle</text>" in html


def test_a_running_body_goes_on_to_now_and_now_can_be_frozen(page: Callable[..., str]) -> None:
    schedule = make_schedule("report")
    ran(ticked(schedule, -7200, state="started", outcome=""), "worker1", -7200, None)
    html = page("timeline", at=AT, **{"from": "2027-03-27T11:59:50Z", "to": "2027-03-27T12:00:10Z"})
    assert "report on worker1: running, 10:00:00, still running" in html, "though it began hours before"
    assert ">now</text>" in html
    assert "Frozen at" in html
    assert "<polygon" in html, "an open end"


def test_refusals_are_small_marks_that_name_the_holder(page: Callable[..., str]) -> None:
    collide()
    html = page("timeline", at=AT)
    assert "invoices on worker2: prevented at 11:59:30, the name is held by another: worker1 token 41" in html
    assert "invoices on worker2: duplicate delivery refused at 11:59:31" in html


def test_filters_narrow_the_timeline_and_not_the_evidence(page: Callable[..., str]) -> None:
    """Two schedules under one lock name: the overlap is seen also where only one of them is shown."""
    one = make_schedule("one", alias="redis", lock_name="shared")
    two = make_schedule("two", alias="redis", lock_name="shared")
    ran(ticked(one, -30), "worker1", -30, -20)
    ran(ticked(two, -25), "worker2", -25, -15)
    html = page("timeline", at=AT, schedule=two.pk)
    assert "1 execution, 1 overlap (1 proven)" in html
    assert "0 executions" in page("timeline", at=AT, strategy="database")
    assert "There is no strategy etcd" in page("timeline", at=AT, strategy="etcd")
    assert "2 executions, 1 overlap (1 proven)" in page("timeline", at=AT, outcome="executed")
    assert "0 executions" in page("timeline", at=AT, outcome="prevented")
    assert "There is no outcome won" in page("timeline", at=AT, outcome="won")


def test_more_workers_than_a_chart_holds_are_shown_page_by_page(page: Callable[..., str]) -> None:
    for number in range(64):
        alive(f"worker{number:02}")
    first, third, beyond = (page("timeline", at=AT, **asked) for asked in ({}, {"lanes": 60}, {"lanes": 999}))
    assert "Workers 1 to 30 of 64 are shown." in first and "worker30" not in first
    assert "lanes=60" in first and ">61 to 64</a>" in first
    for html in (third, beyond):
        assert "Workers 61 to 64 of 64 are shown." in html and "worker59" not in html
        assert re.findall(r'aria-current="true">([^<]*)</a>', html) == ["61 to 64"]


def test_five_thousand_tries_are_binned_and_small(page: Callable[..., str]) -> None:
    tick = ticked(make_schedule(), -3000)
    model = refused(tick, "worker1", -1)
    fields = {f.attname: getattr(model, f.attname) for f in Execution._meta.concrete_fields if f.name != "id"}
    Execution.objects.bulk_create(
        Execution(**{**fields, "recorded_at": moment(-n / 2), "worker": f"worker{n % 4}"}) for n in range(4999)
    )
    html = page("timeline", **{"at": AT, "from": "2027-03-27T11:00:00Z", "to": AT})
    assert "Binned: 1 cell = " in html
    assert len(html) < 400_000
    assert html.count('class="aegis-mark') < 1_100, "two parts a cell at most"


def test_more_tries_than_fit_are_cut_and_it_says_so(
    page: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = ticked(make_schedule(), -60)
    for second in range(9):
        refused(tick, "worker1", -second - 1)
    monkeypatch.setattr(tries, "MOST_TRIES", 5)
    html = page("timeline", at=AT)
    assert "Only the newest 5 tries are shown: the timeline begins at 11:59:55" in html
    assert "5 prevented" in html


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"from": "yesterday"}, "from: &quot;yesterday&quot; is not an instant"),
        ({"from": "2027-03-27T12:00Z", "to": "2027-03-27T11:00Z"}, "is not after from"),
        ({"from": "2020-01-01T00:00Z", "to": "2027-03-27T11:00Z"}, "seven days at most"),
        ({"selected": "12x"}, "selected: &quot;12x&quot; is not a number"),
        ({"selected": "999999999"}, "there is no execution 999999999"),
        ({"at": "noon"}, "at: &quot;noon&quot; is not an instant"),
    ],
)
def test_bad_parameters_are_told_and_the_page_still_answers(
    page: Callable[..., str], params: dict[str, str], told: str
) -> None:
    collide()
    assert told in page("timeline", **params)


def test_zooming_and_moving_are_links(page: Callable[..., str]) -> None:
    collide()
    html = page("timeline", **{"from": "2027-03-27T11:59:00Z", "to": "2027-03-27T12:00:00Z", "at": AT})
    for text, start in {"Zoom in": "11:59:15", "Zoom out": "11:58:30", "Earlier": "11:58:30"}.items():
        assert re.search(rf'href="\?from=2027-03-27T{start}Z[^"]*">{text}<', html)


# The strip, and what an empty page says


def test_the_strip_tells_who_is_alive_by_the_databases_clock(page: Callable[..., str]) -> None:
    assert "Beat: never heard" in page("dashboard")
    now = (database_now() - NOON).total_seconds()
    alive("beat@a", "beat", since=now - 60, until=now - 40)
    assert re.search(r"Beat: silent for 4\d s", page("dashboard"))
    alive("beat@b", "beat", since=now - 60, until=now)
    alive("worker1", since=now - 60, until=now)
    alive("worker2", since=now - 60, until=now - 60)
    alive("worker3", since=now - 60, until=now, stopped_at=moment(now))
    alive("worker4", since=now - 9000, until=now - 8000)
    html = words(page("timeline"))
    assert re.search(r"Beat: heard [\d.]+ s ago, 1 alive", html)
    assert "Workers: 1 alive, 1 silent" in html
    assert "Server time" in html
    alive("beat@c", "beat", since=now - 60, until=now)
    assert re.search(r"Beat: heard [\d.]+ s ago, 2 alive", words(page("timeline")))
    listed = words(page("workers"))
    assert "beat@b" in listed and "beat@c" in listed


def test_the_strip_tells_which_stores_answered_when_they_were_last_used(page: Callable[..., str]) -> None:
    assert "Stores:" not in page("workers")
    now = (database_now() - NOON).total_seconds()
    good, bad, old = (make_schedule(alias, alias=alias) for alias in ("database", "redis", "advisory"))
    ran(ticked(good, now - 5), "worker1", now - 5, now - 4)
    refused(ticked(good, now - 9, outcome="blocked", reason="x"), "worker1", now - 9, "blocked")
    ran(ticked(bad, now - 60), "worker1", now - 60, now - 59)
    refused(ticked(bad, now - 20, outcome="blocked", reason="x"), "worker1", now - 20, "blocked")
    ran(ticked(old, now - 5000), "worker1", now - 5000, now - 4999)
    for name in ("workers", "dashboard", "timeline"):
        assert re.search(r"Stores: redis did not answer 2\d s ago; database ok", words(page(name)))


@pytest.mark.parametrize("name", ["dashboard", "timeline", "workers"])
def test_a_frozen_now_goes_along_to_the_pages_that_it_freezes(page: Callable[..., str], name: str) -> None:
    menu = re.search(r'<nav class="aegis-tabs".*?</nav>', page(name, at=AT, schedule=7), re.DOTALL)
    assert menu is not None
    links = re.findall(r'href="[^"]*/(\w+)/\?([^"]*)"', menu[0])
    assert {page for page, query in links if "at=" in query} == {"dashboard", "timeline", "strategies"}
    assert len(links) >= 5 and all("schedule=7" in query for _, query in links)


@pytest.mark.parametrize("name", ["dashboard", "timeline"])
def test_an_empty_page_names_no_verb_that_the_wheel_lacks(page: Callable[..., str], settings: Any, name: str) -> None:
    assert "aegis demo" in page(name)
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "aegis_site.demo"]
    assert "No schedules yet. Add one" in page(name) and "aegis demo" not in page(name)


@pytest.mark.parametrize("name", ["dashboard", "timeline"])
def test_an_empty_page_says_why_and_what_to_do(page: Callable[..., str], name: str) -> None:
    assert "No schedules yet. Add one" in page(name)
    schedule = make_schedule("nightly")
    Schedule.objects.update(next_fire_at=None)
    assert "No attempts yet. No next tick is planned" in page(name)
    Schedule.objects.update(next_fire_at=database_now() + timedelta(seconds=3000))
    assert re.search(r"No attempts yet\. Next tick in (49|50) min[^(]*\(nightly\)\.", page(name))
    ticked(schedule, -86_400 * 30)
    assert "Nothing in this window. The latest tick before it was" in page(name, at=AT, window="1h")
    other = make_schedule("other")
    ticked(other, -86_400 * 20)
    assert "Clear filters" in page(name, at=AT, window="1h", schedule=other.pk)
    before = page(name, at="2020-01-01T00:00Z", window="1h")
    assert "Nothing was due before the end of this window." in before


# How much they ask


@pytest.mark.parametrize("name", PAGES)
def test_the_number_of_queries_does_not_grow_with_the_rows(viewer: Client, name: str) -> None:
    first, _ = collide()
    where = url(name, at=AT, window="1h", selected=first.pk)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert viewer.get(where).status_code == 200
        return len(captured)

    few = queries()
    for number in range(20):
        schedule = make_schedule(f"more-{number}", alias="redis")
        tick = ticked(schedule, -40 - number)
        ran(tick, "worker1", -40 - number, -1)
        refused(tick, "worker2", -39)
    assert queries() == few <= MOST_QUERIES
