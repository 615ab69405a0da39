"""Changing the strategy of several schedules: what is shown before, what is asked, and when it comes into force."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from scheduler.minting import mint
from scheduler.models import Execution, LockName, Schedule, ScheduleChange, Tick
from scheduler.runner import run
from tests.integration.test_schedule_pages import ran
from tests.integration.test_ticker import due_schedule
from tests.integration.test_verbs import HOSTILE, address, choose, do, text
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.pages import staff

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def changer(client: Client) -> Client:
    client.force_login(staff("carl", "view_schedule", "change_strategy"))
    return client


def four() -> list[Schedule]:
    aliases = {"cleanup": "none", "report": "database", "invoices": "database", "sync": "redlock"}
    return [make_schedule(name, alias=alias, every_seconds=3600) for name, alias in aliases.items()]


def wanted() -> dict[str, str]:
    return dict(Schedule.objects.values_list("name", "lock__alias_wanted"))


def in_force() -> dict[str, str]:
    return dict(Schedule.objects.values_list("name", "lock__alias_in_force"))


def test_four_are_changed_and_the_one_that_is_held_follows_after_its_run(changer: Client) -> None:
    schedules = four()
    report = due_schedule("each-second", alias="database")
    schedules[1] = report

    def hold(context: Any) -> None:
        assert "Show what changes" in choose(changer, "strategy", *schedules).content.decode()
        ids = [schedule.pk for schedule in schedules]
        asked = text(changer.get(address("strategy"), {"schedule": ids, "to": "redis"}))
        for said in (
            "none → redis",
            "database → redis",
            "redlock → redis",
            "held now by worker@3",
            "redis: reachable",
        ):
            assert said in asked, said
        assert "redis" not in wanted().values()
        page = text(do(changer, "strategy", *schedules, to="redis", apply="idle", reason="ticket 7"))
        assert "3 changed, 1 waits for its run to end." in page
        mint()
        assert in_force()["each-second"] == "database" and wanted()["each-second"] == "redis"

    run(delivery_of(make_tick(report), worker="worker@3"), hold)
    Tick.objects.filter(state="planned").update(state="closed", outcome="revoked", reason="test")  # now it is idle
    wait_until(lambda: mint() is not None and in_force()["each-second"] == "redis", 5)
    assert set(Tick.objects.filter(state="planned").values_list("lock_alias", flat=True)) == {"redis"}
    changes = ScheduleChange.objects.filter(after__has_key="strategy")
    assert set(changes.values_list("who", "reason")) == {("carl", "ticket 7")} and changes.count() == 4


def test_what_is_weaker_or_too_short_is_said(changer: Client) -> None:
    schedule = make_schedule("billing", alias="database", every_seconds=60, ttl=3.0)
    for number in range(6):
        ran(schedule, 60 * number + 30, ran=2.0)
    shown = {
        to: text(changer.get(address("strategy"), {"schedule": schedule.pk, "to": to}))
        for to in ("none", "optimistic", "redis", "database", "nosuch")
    }
    assert "removes exclusivity" in shown["none"]
    assert "not renewed, a run that outlives it" in shown["optimistic"]
    assert "lease 3 s &lt; p95 2.0 s x 2" in shown["optimistic"] and "x 2" not in shown["redis"]
    assert "may be gone when the store comes back" in shown["redis"]
    assert "It has strategy database already." in shown["database"]
    assert "Show what changes" in shown["nosuch"] and "Reason" not in shown["nosuch"]


def test_now_with_a_held_lock_needs_a_second_confirmation(changer: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)

    def hold(context: Any) -> None:
        given = {"to": "redis", "apply": "now", "reason": "outage"}
        assert "accept an overlap" in text(do(changer, "strategy", schedule, **given))
        assert in_force() == {"billing": "database"} and wanted() == {"billing": "database"}
        assert "1 changed." in text(do(changer, "strategy", schedule, **given, sure="on"))
        assert in_force() == {"billing": "redis"}

    run(delivery_of(make_tick(schedule), worker="worker@3"), hold)
    assert Execution.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reason": ""}, "Give a reason"),
        ({"to": "nosuch"}, ""),
        ({"to": ""}, ""),
        ({"apply": "later"}, ""),
        ({"to": "database"}, "already"),
    ],
)
def test_an_incomplete_change_changes_nothing(changer: Client, changes: dict[str, str], said: str) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    response = do(changer, "strategy", schedule, **{"to": "redis", "apply": "idle", "reason": "r", **changes})
    assert response.status_code == 200 and said in text(response)
    assert wanted() == {"billing": "database"} and not ScheduleChange.objects.exists()


def test_schedules_of_one_name_change_together_once(changer: Client) -> None:
    one = make_schedule("one", lock_name="shared", every_seconds=60)
    two = make_schedule("two", lock_name="shared", every_seconds=60)
    make_schedule("three", lock_name="shared", every_seconds=60)
    asked = text(changer.get(address("strategy"), {"schedule": [one.pk, two.pk], "to": "redis"}))
    assert "change with it: three." in asked
    page = text(do(changer, "strategy", one, two, to="redis", apply="idle", reason="r"))
    assert "2 changed." in page and LockName.objects.get().alias_wanted == "redis"
    assert ScheduleChange.objects.count() == 3


def test_it_needs_its_permission(client: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    client.force_login(staff("eve", "view_schedule", "change_schedule", "run_schedule", "pause_schedule"))
    assert client.get(address("strategy"), {"schedule": schedule.pk}).status_code == 403
    assert do(client, "strategy", schedule, to="none", apply="now", sure="on", reason="r").status_code == 403
    assert wanted() == {"billing": "database"}


def test_text_of_people_stays_text(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    schedule = make_schedule(HOSTILE, lock_name="hostile", every_seconds=60)
    page = client.get(address("strategy"), {"schedule": schedule.pk, "to": "redis"}).content.decode()
    page += do(client, "strategy", schedule, to="redis", apply="idle", reason=HOSTILE).content.decode()
    assert HOSTILE not in page and "&lt;script&gt;" in page
