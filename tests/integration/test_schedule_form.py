"""The preview that follows the form, the advice beside its fields, and who may change a strategy in it."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from scheduler.models import Instance, LockName, Schedule
from tests.integration.test_admin import ADD, CHANGE, boss, filled, problems  # noqa: F401
from tests.integration.test_schedule_pages import ran
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

PREVIEW = "admin:aegis_scheduler_schedule_preview"


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def preview(client: Client, schedule: Schedule | None = None, **changes: Any) -> str:
    address = reverse(f"{PREVIEW}_of", args=[schedule.pk]) if schedule else reverse(PREVIEW)
    response = client.post(address, filled(**changes))
    assert response.status_code == 200
    return response.content.decode()


def test_the_fragment_shows_the_runs_that_the_command_names(boss: Client) -> None:  # noqa: F811
    schedule = make_schedule("report", cron_expression="30 2 * * *", time_zone="Europe/Berlin")
    shown = preview(boss, schedule, name="report")
    out = StringIO()
    call_command("aegis", "schedules", "next", "report", "-n", "5", "--format", "json", stdout=out)
    rows = json.loads(out.getvalue())["next"]
    assert len(rows) == 5
    for row in rows:
        assert row["local"] in shown and row["utc"] in shown
    assert "<html" not in shown and not Schedule.objects.filter(name="Nightly report").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cron_expression": "0 0 13 * 5"}, "combined with OR"),
        ({"cron_expression": "*/7 * * * *"}, "the last gap is 4 minutes"),
        ({"cron_expression": "30 2 * * *"}, "the clocks go forward"),
        ({"cron_expression": "0 0 31 2 *"}, "never fires"),
        ({"cron_expression": "61 * * * *"}, "61"),
        ({"cron_expression": "", "every_seconds": "90"}, "Every 1 minute 30 seconds"),
        ({"time_zone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"strategy": "none"}, "overlap is expected. Use it to measure"),
    ],
)
def test_the_fragment_says_what_is_wrong_or_surprises(boss: Client, changes: dict[str, Any], said: str) -> None:  # noqa: F811
    assert said in text(preview(boss, **changes))


def test_an_error_is_tied_to_its_field(boss: Client) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(cron_expression="0 0 31 2 *"))
    assert "never fires" in problems(response)["cron_expression"]
    page = response.content.decode()
    (field,) = re.findall(r'<input[^>]*name="cron_expression"[^>]*>', page)
    assert 'aria-invalid="true"' in field
    described = re.search(r'aria-describedby="([^"]+)"', field)
    assert described is not None
    ids = described[1].split()
    assert any("error" in one for one in ids) and all(f'id="{one}"' in page for one in ids), ids


def test_a_lease_near_the_run_time_that_nothing_renews_is_told(boss: Client) -> None:  # noqa: F811
    schedule = make_schedule("billing", alias="optimistic", every_seconds=60, ttl=3.0)
    for number in range(6):
        ran(schedule, 60 * number + 30, ran=2.8)
    same = {"name": "billing", "cron_expression": "", "every_seconds": "60", "lock_name": schedule.lock_id}
    shown = text(preview(boss, schedule, strategy="optimistic", ttl="3", **same))
    assert "The lease of 3 s is close to the p95 run time (2.8 s) and is not renewed. Use at least 6 s" in shown
    assert "close to the p95" not in text(preview(boss, schedule, strategy="database", ttl="3", **same))
    assert "close to the p95" in text(boss.get(reverse(CHANGE, args=[schedule.pk])).content.decode())


def test_a_queue_that_nobody_reads_is_told_where_it_is_known(boss: Client) -> None:  # noqa: F811
    assert "No live worker reads" not in text(preview(boss, queue="slow"))
    now = database_now()
    worker = Instance.objects.create(
        kind="worker", name="w@a", host="a", pid=1, started_at=now, heartbeat_at=now, queues=["celery"]
    )
    assert "No live worker reads the queue &#x27;slow&#x27;" in text(preview(boss, queue="slow"))
    assert "No live worker reads" not in text(preview(boss))
    Instance.objects.filter(pk=worker.pk).update(queues=None)
    assert "No live worker reads" not in text(preview(boss, queue="slow"))


def test_each_strategy_has_a_line_and_the_chosen_one_is_marked(boss: Client) -> None:  # noqa: F811
    shown = text(preview(boss, strategy="redis"))
    assert "redis (chosen)" in shown
    for alias in ("none", "database", "optimistic", "advisory", "row_lock", "redlock"):
        assert alias in shown
    page = boss.get(reverse(ADD)).content.decode()
    assert f'data-aegis-preview="{reverse(PREVIEW)}"' in page and "preview.js" in page


def test_the_preview_is_for_those_who_may_save_and_for_posts(client: Client) -> None:
    schedule = make_schedule("billing")
    pages = [reverse(PREVIEW), reverse(f"{PREVIEW}_of", args=[schedule.pk])]
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.set(Permission.objects.filter(codename="view_schedule"))
    client.force_login(viewer)
    for page in pages:
        assert client.post(page, filled()).status_code == 403
        assert client.get(page).status_code == 405
    client.force_login(User.objects.create_superuser("root"))
    assert client.post(reverse(f"{PREVIEW}_of", args=[999999]), filled()).status_code == 404


def test_the_form_changes_the_strategy_of_a_stored_name_only_with_the_permission(client: Client) -> None:
    schedule = make_schedule("billing", every_seconds=60)
    editor = User.objects.create_user("editor", is_staff=True)
    editor.user_permissions.set(Permission.objects.filter(codename__in=["change_schedule", "add_schedule"]))
    client.force_login(editor)
    edit = reverse(CHANGE, args=[schedule.pk])
    other = make_schedule("other", alias="redis")
    same = {"name": "billing", "lock_name": schedule.lock_id}
    for refused in ({**same, "strategy": "redis"}, {**same, "lock_name": other.lock_id}):
        response = client.post(edit, filled(**refused))
        assert response.status_code == 200 and "change_strategy" in problems(response)["strategy"]
    response = client.post(reverse(ADD), filled(lock_name=other.lock_id, strategy="none"))
    assert response.status_code == 200 and "change_strategy" in problems(response)["strategy"]
    assert set(LockName.objects.values_list("alias_wanted", flat=True)) == {"database", "redis"}
    assert client.post(edit, filled(**same, notes="new")).status_code == 302
    editor.user_permissions.add(Permission.objects.get(codename="change_strategy"))
    assert client.post(edit, filled(**same, strategy="redis")).status_code == 302
    assert LockName.objects.get(name=schedule.lock_id).alias_wanted == "redis"
