"""Alerts: what opens one, that it is opened once, who is told, what people do with it, and what is refused."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection
from django.test import Client
from django.urls import reverse

from locks import lock_backends
from locks.models import LeaseRecord
from scheduler import pausing
from scheduler.alerts import channels, handling, rules
from scheduler.alerts import look as look_at
from scheduler.alerts.look import look
from scheduler.alerts.settings import check_alerts
from scheduler.alerts.watch import watch
from scheduler.minting import mint
from scheduler.models import (
    Alert,
    AlertDelivery,
    AlertLook,
    AlertRule,
    Instance,
    LockRelease,
    Schedule,
    Tick,
)
from scheduler.pruning import prune
from scheduler.signals import alert_closed, alert_opened
from scheduler.statements import dispatch
from scheduler.watchdog import Watchdog
from tests.browser import seed
from tests.support import wait_until
from tests.support.engine import database_now, make_schedule, make_tick, store

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:aegis_scheduler_alert_changelist"
RULES_PAGE = "admin:aegis_scheduler_alert_rules"


@pytest.fixture
def handler(client: Client) -> Client:
    client.force_login(staff("view_alert", "change_alert"))
    return client


def staff(*codenames: str) -> User:
    user = User.objects.create_user("-".join(codenames)[:30] or "nobody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def over(schedule: Schedule, ago: float, **fields: Any) -> Any:
    """A tick that was executed ``ago`` seconds ago."""
    known = {"state": "closed", "outcome": "executed", "closed_at": database_now()}
    return make_tick(schedule, seconds_ago=ago, **{**known, **fields})


def overlap() -> None:
    """Two bodies inside at once, a minute ago."""
    tick = over(make_schedule("baseline", alias="none", once_per_tick=False), 60)
    seed.ran(tick, "worker@1", 0.1, 5.0)
    seed.ran(tick, "worker@2", 0.2, 4.0)


def missed(schedule: Schedule, ago: float = 60.0) -> None:
    over(schedule, ago, state="misfired", outcome="misfired", reason="nobody began it in time")


def a_beat(ago: float = 0.0) -> None:
    Instance.objects.create(
        kind="beat", name="beat@a", host="a", pid=1, heartbeat_at=database_now() - timedelta(seconds=ago)
    )


def looked() -> dict[str, Alert]:
    """Look now; what is not closed, by rule."""
    assert look("test", every=0) is not None
    return {alert.rule: alert for alert in Alert.objects.exclude(state="closed")}


def test_a_quiet_catalog_has_no_alert() -> None:
    a_beat()
    seed.ran(over(make_schedule("fine"), 60), "worker@1", 0.1, 2.0)
    assert looked() == {}


def test_collisions_name_the_lock_and_the_execution_that_shows_them() -> None:
    a_beat()
    overlap()
    found = looked()
    assert {*found} == {"overlap", "duplicate"}
    assert found["overlap"].subject == "lock.baseline"
    assert found["overlap"].execution_id is not None


def test_each_rule_sees_its_condition() -> None:
    a_beat(ago=100)
    slow = Instance.objects.create(kind="worker", name="w@a", host="a", pid=2, clock_offset=-3.0, clock_error=0.1)
    schedule = make_schedule("report", alias="redis", cron_expression="*/5 * * * *")
    missed(schedule)
    for number in range(4):
        at = database_now() - timedelta(seconds=number)
        blocked = seed.refused(over(schedule, 30 + number), "worker@1", 1, "blocked")
        type(blocked).objects.filter(pk=blocked.pk).update(recorded_at=at)
    starved = make_schedule("starved")
    for number in range(3):
        over(starved, 500 - number, outcome="prevented", reason="held by another")
    Schedule.objects.filter(pk=starved.pk).update(next_fire_at=database_now())
    broken = make_schedule("broken", cron_expression="1 1 1 1 *")
    Schedule.objects.filter(pk=broken.pk).update(broken_reason="the zone is gone")
    LockRelease.objects.create(
        name="x", alias="redis", lease_id="0" * 32, reason="stuck", who="ana", result="released"
    )
    found = looked()
    assert {*found} >= {"beat_silent", "missed", "blocked", "clock", "never", "starved", "release"}
    assert found["clock"].subject == str(slow)
    assert found["blocked"].count == 4
    assert "the zone is gone" in found["never"].message


def test_a_stretch_that_was_skipped_long_ago_is_told_when_it_is_stored_and_counts_its_fire_times() -> None:
    """Beats were down for two hours: what they skip is stored under its first fire time."""
    a_beat()
    now = database_now()
    schedule = make_schedule("report", every_seconds=60, misfire="skip", misfire_grace=30)
    store(schedule, next_fire_at=now - timedelta(hours=2), activated_at=now - timedelta(hours=3))
    mint(now)
    stretch = Tick.objects.get(state="misfired")
    assert stretch.fire_time < now - rules.WINDOW and stretch.missed_count > 100
    alert = looked()["missed"]
    assert alert.count == stretch.missed_count
    assert f"{stretch.missed_count} fire times missed" in alert.message
    missed(schedule, 30)
    assert looked()["missed"].count == stretch.missed_count + 1
    Tick.objects.filter(pk=stretch.pk).update(missed_count=0)
    assert looked()["missed"].message.startswith("2 fire times")


@pytest.mark.parametrize("act", ["pause", "disable", "delete"])
def test_what_an_operators_switch_closed_is_not_missed(act: str) -> None:
    a_beat()
    schedule = make_schedule("report")
    tick = make_tick(schedule)
    if act == "pause":
        pausing.pause("report", why="we move house", who="ada")
    elif act == "disable":
        pausing.switch("report", enabled=False, who="ada")
    else:
        schedule.delete()
    connection.cursor().execute(dispatch.SWITCHED_OFF, {"batch": 10})
    tick.refresh_from_db()
    assert tick.state == "misfired"
    assert "missed" not in looked()


def test_starvation_is_seen_however_many_schedules_come_before(monkeypatch: pytest.MonkeyPatch) -> None:
    a_beat()
    monkeypatch.setattr(rules, "MOST", 2)
    for name in ("a", "b", "c"):
        make_schedule(name)
    starved = make_schedule("zoo")
    for number in range(3):
        over(starved, 500 - number, outcome="prevented", reason="held by another")
    Schedule.objects.update(next_fire_at=database_now())
    assert looked()["starved"].subject == "zoo"


def test_an_open_alert_is_not_hidden_by_many_that_somebody_looks_after(handler: Client) -> None:
    a_beat()
    missed(make_schedule("report"))
    looked()
    long_ago, soon = database_now() - timedelta(days=1), database_now() + timedelta(days=1)
    Alert.objects.update(last_seen=long_ago)
    Alert.objects.bulk_create(
        Alert(rule="missed", subject=f"s{n}", message="m", state="acknowledged", last_seen=soon) for n in range(501)
    )
    out, err = StringIO(), StringIO()
    call_command("aegis", "alerts", "list", "--format", "json", stdout=out, stderr=err)
    said = json.loads(out.getvalue())
    assert (len(said["alerts"]), said["more"], said["alerts"][0]["subject"]) == (500, 2, "report")
    assert "2 more" in err.getvalue()
    with pytest.raises(CommandError) as ended:
        call_command("aegis", "alerts", "check", stdout=StringIO(), stderr=StringIO())
    assert ended.value.returncode == 1
    data = handler.get(reverse("admin:aegis_scheduler_alert_data")).json()
    assert (len(data["alerts"]), data["more"], data["alerts"][0]["subject"]) == (100, 402, "report")


def test_little_headroom_and_an_orphan_are_seen() -> None:
    a_beat()
    schedule = make_schedule("tight", alias="optimistic", ttl=10)
    for number in range(6):
        seed.ran(over(schedule, 3000 + 60 * number), "worker@1", 0.1, 9.6)
    lease = lock_backends["database"].acquire(make_schedule("dead").lock_id, ttl=60)
    assert lease is not None
    LeaseRecord.objects.update(acquired_at=database_now() - timedelta(minutes=1))
    try:
        found = looked()
    finally:
        lock_backends["database"].release(lease)
    assert (found["headroom"].subject, found["orphan"].subject) == ("tight", "lock.dead")


def test_it_opens_once_counts_new_events_only_and_closes_when_it_is_gone() -> None:
    a_beat()
    schedule = make_schedule("report")
    missed(schedule)
    first = looked()["missed"]
    assert (looked()["missed"].pk, looked()["missed"].count) == (first.pk, 1)
    missed(schedule, 30)
    missed(schedule, 20)
    again = looked()["missed"]
    assert (again.pk, again.count) == (first.pk, 3)
    connection.cursor().execute("UPDATE aegis_scheduler_tick SET closed_at = closed_at - interval '1 hour'")
    assert looked() == {}
    first.refresh_from_db()
    assert first.state == "closed" and first.closed_at is not None
    missed(schedule, 10)
    assert looked()["missed"].pk != first.pk


def test_many_beats_look_once_within_an_interval() -> None:
    turns: list[object] = []

    def run() -> None:
        with closing(connection):
            turns.append(look("one of many", every=60))

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([turn for turn in turns if turn is not None]) == 1


def test_the_thread_of_a_beat_looks_and_stops(settings: Any) -> None:
    settings.AEGIS = {"ALERTS": {"EVERY": 0.05}}
    aside = watch(Watchdog(30))
    aside.start()
    try:
        wait_until(AlertLook.objects.exists, message="a look was stored")
    finally:
        aside.stop()
    assert aside._thread is not None
    aside._thread.join(5)
    assert not aside._thread.is_alive()
    assert AlertLook.objects.get().looked_by.startswith("beat@")


def test_looks_at_the_same_time_open_one_alert_and_tell_once() -> None:
    a_beat()
    missed(make_schedule("report"))

    def run() -> None:
        with closing(connection):
            look("one of many", every=0)

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alert = Alert.objects.get()
    assert alert.count == 1
    assert alert.deliveries.filter(channel="log").count() == 1


def test_a_slow_look_closes_nothing_that_another_has_seen_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """It began before the condition did, and comes to its end after the other has told it."""
    a_beat()
    schedule, real, calls = make_schedule("report"), rules.RULES["missed"], []

    def slow(now: Any, threshold: float) -> Iterator[rules.Seen]:
        calls.append(now)
        if len(calls) > 1:
            return real.find(now, threshold)
        missed(schedule)
        assert look("the other", every=0) is not None
        return iter(())

    monkeypatch.setitem(rules.RULES, "missed", rules.Rule(key="missed", title="Missed", find=slow))
    look("the slow one", every=0)
    look("the next", every=0)
    alert = Alert.objects.get(rule="missed")
    assert alert.state == "open"
    assert alert.deliveries.filter(channel="log").count() == 1
    assert len(calls) == 3


def test_the_schema_refuses_a_second_open_alert() -> None:
    Alert.objects.create(rule="missed", subject="x", message="m")
    with pytest.raises(IntegrityError, match="aegis_alert_one_not_closed"):
        Alert.objects.create(rule="missed", subject="x", message="m", state="acknowledged")


def test_a_rule_that_cannot_be_looked_at_closes_nothing_and_is_named(
    handler: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_beat()
    missed(make_schedule("report"))
    looked()

    def away(*args: object) -> Iterator[rules.Seen]:
        raise OSError("the store is away at redis://user:hunter2@host")

    monkeypatch.setitem(rules.RULES, "missed", rules.Rule(key="missed", title="Missed", find=away))
    assert "missed" in looked()
    page = handler.get(reverse(LIST)).content.decode()
    assert "could not be looked at" in page
    assert "hunter2" not in page


def test_a_rule_can_be_switched_off_and_its_threshold_raised() -> None:
    a_beat()
    schedule = make_schedule("report")
    missed(schedule)
    AlertRule.objects.create(key="missed", threshold=2)
    assert looked() == {}
    missed(schedule, 30)
    assert {*looked()} == {"missed"}
    AlertRule.objects.update(enabled=False)
    assert looked() == {}


class Hook(BaseHTTPRequestHandler):
    got: list[dict[str, Any]] = []
    status = 200
    wait = 0.0
    drips = 0  # bytes of an answer that comes byte by byte

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(json.loads(body))
        for _ in range(self.drips):
            self.wfile.write(b"H")
            time.sleep(self.wait)
        time.sleep(self.wait)
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hook(settings: Any) -> Iterator[type[Hook]]:
    Hook.got, Hook.status, Hook.wait, Hook.drips = [], 200, 0.0, 0
    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.AEGIS = {
        "ALERTS": {"WEBHOOK": f"http://127.0.0.1:{server.server_port}/hunter2", "EMAIL": ["ops@example.com"]}
    }
    yield Hook
    server.shutdown()
    server.server_close()


def test_every_channel_is_told_once_and_it_is_recorded(hook: type[Hook]) -> None:
    a_beat()
    missed(make_schedule("report"))
    heard: list[Alert] = []

    def receiver(alert: Alert, **kwargs: object) -> None:
        heard.append(alert)

    alert_opened.connect(receiver)
    try:
        alert = looked()["missed"]
        looked()
    finally:
        alert_opened.disconnect(receiver)
    assert [one.subject for one in heard] == ["report"]
    assert [one["subject"] for one in hook.got] == ["report"]
    assert hook.got[0]["schema"] == "aegis.alert.1"
    assert [message.subject for message in mail.outbox] == ["[Aegis] Missed: report"]
    assert {(one.channel, one.ok) for one in alert.deliveries.all()} == {
        ("log", True), ("signal", True), ("e-mail", True), ("webhook", True)
    }  # fmt: skip


def test_what_was_told_is_told_to_be_over_and_where_it_is(hook: type[Hook], settings: Any) -> None:
    """Receivers that keep incidents would keep them open for ever."""
    settings.AEGIS["ALERTS"]["BASE_URL"] = "https://shop.example.com/"
    a_beat()
    schedule, quiet = make_schedule("report"), make_schedule("quiet")
    missed(schedule)
    missed(quiet)
    over: list[str] = []

    def receiver(alert: Alert, **kwargs: object) -> None:
        over.append(alert.subject)

    alert_closed.connect(receiver)
    try:
        looked()
        Alert.objects.filter(subject="quiet").update(notified_at=None)
        Alert.objects.filter(subject="report").update(state="acknowledged")
        Tick.objects.all().delete()
        looked()
        looked()
    finally:
        alert_closed.disconnect(receiver)
    opened, closed = (one for one in hook.got if one["subject"] == "report")
    url = f"https://shop.example.com/admin/aegis_scheduler/alert/{opened['id']}/"
    assert (opened["state"], closed["state"], opened["url"]) == ("open", "closed", url)
    assert opened["text"].startswith("[Aegis] Missed: report: ") and opened["text"].endswith(url)
    assert closed["text"].startswith("[Aegis] Over: Missed: report: ")
    assert over == ["report"]
    assert [message.subject for message in mail.outbox if "report" in message.subject] == [
        "[Aegis] Missed: report", "[Aegis] Over: Missed: report"
    ]  # fmt: skip
    assert url in mail.outbox[-1].body


def test_more_that_are_over_than_one_look_tells_are_closed_and_told_by_the_next(
    hook: type[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage they are over all at once, and an incident of which nobody is told stays open for ever."""
    monkeypatch.setattr(look_at, "MOST_TOLD", 2)
    a_beat()
    for number in range(5):
        missed(make_schedule(f"report{number}"))
    for _ in range(3):
        looked()
    Tick.objects.all().delete()
    for closed in (2, 4, 5, 5):
        looked()
        assert Alert.objects.filter(state="closed").count() == closed
    told = [one["subject"] for one in hook.got if one["state"] == "closed"]
    assert sorted(told) == [f"report{number}" for number in range(5)]


def test_a_dead_channel_delays_nobody_and_no_secret_is_kept(
    hook: type[Hook], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(channels, "TIMEOUT", 0.3)
    hook.wait = 2.0
    a_beat()
    for name in ("one", "two", "three"):
        missed(make_schedule(name))
    began = time.monotonic()
    looked()
    assert time.monotonic() - began < 5  # one time-out, not three, on a busy machine
    sent = AlertDelivery.objects.filter(channel="webhook")
    assert {one.ok for one in sent} == {False}
    assert "left out: it had just failed" in {one.detail for one in sent}
    assert AlertDelivery.objects.filter(channel="e-mail", ok=True).count() == 3
    assert "hunter2" not in caplog.text + "".join(one.detail for one in sent)


def test_a_webhook_that_answers_by_the_byte_is_given_up(hook: type[Hook], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes before the time-out of a step; all of them together would take seconds."""
    monkeypatch.setattr(channels, "PATIENCE", 0.5)
    hook.drips, hook.wait = 30, 0.1
    a_beat()
    missed(make_schedule("report"))
    looked()
    assert AlertDelivery.objects.get(channel="webhook").detail == "no answer within 0.5 s"


@pytest.mark.parametrize(("status", "said"), [(500, "answered 500"), (302, "answered 302")])
def test_a_webhook_that_refuses_or_leads_elsewhere_is_told(hook: type[Hook], status: int, said: str) -> None:
    hook.status = status
    a_beat()
    missed(make_schedule("report"))
    looked()
    assert AlertDelivery.objects.get(channel="webhook").detail == said


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "https://", "hooks", "http://[::1"])
def test_only_web_addresses_are_used(settings: Any, url: str) -> None:
    settings.AEGIS = {"ALERTS": {"WEBHOOK": url, "MAIL": [], "EMAIL": "ops@example.com"}}
    assert [found.id for found in check_alerts()] == ["aegis.scheduler.E013"] * 3
    a_beat()
    settings.AEGIS = {"ALERTS": {"WEBHOOK": url}}
    missed(make_schedule("report"))
    looked()
    assert not AlertDelivery.objects.get(channel="webhook").ok


@pytest.mark.parametrize("given", [{"BASE_URL": "http://[::1"}, {"EMAIL": 5}, {"EMAIL": {"ops@example.com": 1}}])
def test_a_setting_that_cannot_be_read_is_a_message_of_the_checks(settings: Any, given: Any) -> None:
    settings.AEGIS = {"ALERTS": given}
    assert [found.id for found in check_alerts()] == ["aegis.scheduler.E013"]


def post(client: Client, alert: Alert, do: str, **fields: str) -> int:
    given = {f"{do}-{name}": value for name, value in fields.items()}
    return client.post(
        reverse("admin:aegis_scheduler_alert_detail", args=[alert.pk]), {"do": do, **given}
    ).status_code


def test_it_is_acknowledged_muted_and_opened_again_with_a_trace(handler: Client) -> None:
    a_beat()
    missed(make_schedule("report"))
    alert = looked()["missed"]
    assert post(handler, alert, "acknowledge", note="") == 200
    assert post(handler, alert, "acknowledge", note="on it") == 302
    assert looked()["missed"].state == "acknowledged"
    assert post(handler, alert, "mute", note="known", until="1h") == 302
    alert.refresh_from_db()
    assert alert.state == "muted" and alert.muted_until is not None
    told = alert.deliveries.count()
    looked()
    assert alert.deliveries.count() == told
    Alert.objects.update(muted_until=database_now() - timedelta(seconds=1))
    assert looked()["missed"].state == "open"
    assert alert.deliveries.count() == 2 * told
    assert LogEntry.objects.order_by("id").values_list("change_message", flat=True).first() == "acknowledged: on it"
    page = handler.get(reverse("admin:aegis_scheduler_alert_detail", args=[alert.pk])).content.decode()
    assert "on it" in page or "known" in page


def test_a_closed_one_cannot_be_handled(handler: Client) -> None:
    alert = Alert.objects.create(rule="missed", subject="x", message="m", state="closed", closed_at=database_now())
    response = handler.post(
        reverse("admin:aegis_scheduler_alert_detail", args=[alert.pk]),
        {"do": "acknowledge", "acknowledge-note": "n"},
        follow=True,
    )
    assert "Nothing was changed" in response.content.decode()
    alert.refresh_from_db()
    assert alert.state == "closed"


def test_a_viewer_reads_and_changes_nothing(client: Client) -> None:
    alert = Alert.objects.create(rule="missed", subject="x", message="m")
    client.force_login(staff("view_alert"))
    for page in (reverse(LIST), reverse(RULES_PAGE), reverse("admin:aegis_scheduler_alert_detail", args=[alert.pk])):
        text = client.get(page).content.decode()
        assert "Acknowledge</button>" not in text and "Send test" not in text and "Save the rules" not in text
    assert post(client, alert, "acknowledge", note="n") == 403
    assert client.post(reverse(RULES_PAGE), {"missed-threshold": "5"}).status_code == 403
    assert client.post(reverse("admin:aegis_scheduler_alert_test")).status_code == 403
    alert.refresh_from_db()
    assert alert.state == "open"
    assert not AlertRule.objects.exists() and not AlertDelivery.objects.exists()
    client.force_login(staff())
    assert client.get(reverse(LIST)).status_code == 403
    assert client.get(reverse("admin:aegis_scheduler_alert_detail", args=[alert.pk])).status_code == 403


def test_the_data_beside_the_list_are_those_of_the_list(handler: Client) -> None:
    for state in ("open", "closed"):
        over_at = database_now() if state == "closed" else None
        Alert.objects.create(rule="missed", subject=state, message="m", state=state, closed_at=over_at)
    for asked, shown in (({}, "open"), ({"state": "closed"}, "closed")):
        (data,) = re.findall(r'href="([^"]*)">Data', handler.get(reverse(LIST), asked).content.decode())
        assert [one["subject"] for one in handler.get(data).json()["alerts"]] == [shown]


def test_rules_are_set_on_their_page(handler: Client) -> None:
    given = {f"{key}-enabled": "on" for key in rules.RULES if key != "clock"}
    response = handler.post(reverse(RULES_PAGE), {**given, "missed-threshold": "5"}, follow=True)
    assert "Changed: Missed, Clock offset." in response.content.decode()
    assert {one.key: (one.enabled, one.threshold) for one in AlertRule.objects.all()} == {
        "missed": (True, 5.0), "clock": (False, None)
    }  # fmt: skip
    bad = handler.post(reverse(RULES_PAGE), {**given, "missed-threshold": "-1"}).content.decode()
    assert "greater than or equal to 0" in bad
    (field,) = re.findall(r'<input[^>]*name="missed-threshold"[^>]*>', bad)
    assert 'aria-invalid="true"' in field and 'value="-1"' in field and 'aria-label="Missed: from"' in field
    described = re.search(r'aria-describedby="([^"]+)"', field)
    assert described is not None and f'id="{described[1]}"' in bad
    assert LogEntry.objects.count() == 2


def test_a_form_of_rules_stores_only_what_was_changed_in_it_and_over_nobody(handler: Client) -> None:
    page = handler.get(reverse(RULES_PAGE)).content.decode()
    shown = dict(re.findall(r'name="(\w+-shown)" value="([^"]*)"', page))
    assert {*shown} == {f"{key}-shown" for key in rules.RULES}
    given = {**shown, **{f"{key}-enabled": "on" for key in rules.RULES}, "missed-threshold": "5"}
    ben = User.objects.create_user("ben")
    handling.set_rule("clock", enabled=False, threshold=None, who=ben)
    handler.post(reverse(RULES_PAGE), given)
    assert {one.key: (one.enabled, one.threshold) for one in AlertRule.objects.all()} == {
        "missed": (True, 5.0), "clock": (False, None)
    }  # fmt: skip
    handling.set_rule("missed", enabled=False, threshold=None, who=ben)
    text = handler.post(reverse(RULES_PAGE), given, follow=True).content.decode()
    assert "Missed was left as it is: ben has set it meanwhile (off, threshold default)" in text
    assert not AlertRule.objects.get(key="missed").enabled


def test_a_test_shows_what_each_channel_said(handler: Client, hook: type[Hook]) -> None:
    hook.status = 500
    text = handler.post(reverse("admin:aegis_scheduler_alert_test")).content.decode()
    assert "webhook: NOT told" in text and "answered 500" in text
    assert "e-mail: told" in text
    assert not Alert.objects.exists()


def test_a_user_sends_a_few_tests_a_minute_over_all_processes(settings: Any, handler: Client) -> None:
    settings.AEGIS = {**getattr(settings, "AEGIS", {}), "RATE_LIMITS": {"send_test": 2}}
    address = reverse("admin:aegis_scheduler_alert_test")
    answers: list[int] = []
    gate = threading.Barrier(4)

    def send() -> None:
        with closing(connection):
            gate.wait(10)
            answers.append(Client(headers={"cookie": cookie}).post(address).status_code)

    cookie = f"sessionid={handler.cookies['sessionid'].value}"
    threads = [threading.Thread(target=send) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join(30) for thread in threads]
    assert sorted(answers) == [200, 200, 429, 429]
    refused = handler.post(address)
    assert refused.status_code == 429 and "Nobody was told: You have done this 2 times" in refused.content.decode()
    assert AlertDelivery.objects.filter(channel="signal").count() == 2
    assert {*LogEntry.objects.values_list("change_message", flat=True)} == {"sent a test to every channel"}
    call_command("aegis", "alerts", "test", stdout=StringIO())
    assert AlertDelivery.objects.filter(channel="signal").count() == 3


def test_tabs_count_and_an_old_look_is_told(handler: Client) -> None:
    Alert.objects.create(rule="missed", subject="<script>x</script>", message="<b>m</b>")
    assert "Nobody has looked at the rules yet" in handler.get(reverse(LIST)).content.decode()
    AlertLook.objects.create(looked_at=database_now() - timedelta(hours=1))
    page = handler.get(reverse(LIST)).content.decode()
    assert "Nobody has looked at the rules for" in page
    assert "Open (1)" in page and "Closed (0)" in page
    assert "&lt;script&gt;x" in page and "<script>x" not in page and "<b>m" not in page
    assert handler.get(reverse("admin:aegis_scheduler_alert_data")).json()["alerts"][0]["rule"] == "missed"


def test_the_command_is_for_cron() -> None:
    a_beat()
    out = StringIO()
    call_command("aegis", "alerts", "check", "--format", "json", stdout=out)
    assert json.loads(out.getvalue()) == {"schema": 1, "alerts": [], "more": 0}
    Instance.objects.all().delete()
    make_schedule("due")
    with pytest.raises(CommandError) as ended:
        call_command("aegis", "alerts", "check", stdout=(out := StringIO()))
    assert ended.value.returncode == 1
    assert "Beat silent" in out.getvalue()
    call_command("aegis", "alerts", "list", stdout=(out := StringIO()))
    assert out.getvalue().split()[:4] == ["ID", "STATE", "RULE", "SUBJECT"]
    call_command("aegis", "alerts", "test", stdout=(out := StringIO()))
    assert "log\ttold" in out.getvalue()


def test_what_is_closed_is_pruned_and_what_holds_is_kept() -> None:
    old = database_now() - timedelta(days=40)
    closed = Alert.objects.create(rule="missed", subject="old", message="m", state="closed", closed_at=old)
    AlertDelivery.objects.create(alert=closed, channel="log", ok=True)
    AlertDelivery.objects.create(channel="log", ok=True, sent_at=old)
    Alert.objects.create(rule="missed", subject="holds", message="m", first_seen=old, last_seen=old)
    prune(timedelta(days=30))
    assert [alert.subject for alert in Alert.objects.all()] == ["holds"]
    assert not AlertDelivery.objects.exists()
