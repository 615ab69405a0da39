"""The preview that follows the form, the advice beside its fields, and who may change a strategy in it."""

from __future__ import annotations

import json
import re
import threading
from contextlib import closing
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from scheduler import pausing
from scheduler.minting import mint
from scheduler.models import Instance, LockName, Schedule, Tick
from scheduler.registry import exclusive_tasks
from scheduler.retargeting import retarget
from tests.browser import seed
from tests.integration.test_admin import ADD, CHANGE, boss, filled, problems  # noqa: F401
from tests.integration.test_schedule_pages import ran
from tests.support import wait_until
from tests.support.engine import database_now, make_schedule, make_tick, store

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
    for field, refused in (("strategy", "redis"), ("lock_name", other.lock_id), ("lock_name", "of-my-own")):
        response = client.post(edit, filled(**{**same, field: refused}))
        assert response.status_code == 200 and "change_strategy" in problems(response)[field]
    response = client.post(reverse(ADD), filled(lock_name=other.lock_id, strategy="none"))
    assert response.status_code == 200 and "change_strategy" in problems(response)["strategy"]
    assert set(LockName.objects.values_list("alias_wanted", flat=True)) == {"database", "redis"}
    assert client.post(edit, filled(**same, notes="new")).status_code == 302
    editor.user_permissions.add(Permission.objects.get(codename="change_strategy"))
    assert client.post(edit, filled(**same, strategy="redis")).status_code == 302
    assert LockName.objects.get(name=schedule.lock_id).alias_wanted == "redis"


@pytest.mark.parametrize("state", ["dispatched", "started"])
def test_the_lock_name_is_kept_while_something_of_the_schedule_is_open_under_it(boss: Client, state: str) -> None:  # noqa: F811
    schedule = make_schedule("billing", every_seconds=60)
    tick = make_tick(schedule, state=state)
    if state == "started":
        seed.ran(tick, "worker@1", 0.0, None)
    edit, given = reverse(CHANGE, args=[schedule.pk]), filled(name="billing", lock_name="another")
    response = boss.post(edit, given)
    assert response.status_code == 200
    told = problems(response)["lock_name"]
    assert ("worker@1 is inside" if state == "started" else "is dispatched") in told and "Pause" in told
    assert Schedule.objects.get().lock_id == schedule.lock_id
    assert boss.post(edit, {**given, "lock_name": schedule.lock_id}).status_code == 302
    tick.executions.update(state="executed", ended_at=database_now())
    Tick.objects.update(state="closed", outcome="executed", closed_at=database_now())
    assert boss.post(edit, given).status_code == 302
    assert Schedule.objects.get().lock_id == "another"


def test_a_lock_name_is_not_changed_beside_a_beat_that_stores_a_tick(boss: Client) -> None:  # noqa: F811
    """The beat has the schedule and its name; the form waits for it, and sees the tick that it stored."""
    schedule = make_schedule("billing", every_seconds=60)
    store(schedule, next_fire_at=database_now())
    answers: list[Any] = []

    def save() -> None:
        with closing(connection):
            answers.append(
                boss.post(reverse(CHANGE, args=[schedule.pk]), filled(name="billing", lock_name="another"))
            )

    with transaction.atomic():
        assert mint().ticks
        saving = threading.Thread(target=save)
        saving.start()
        wait_until(_somebody_waits, message="the form waits for the beat")
    saving.join(30)
    assert "its tick of" in problems(answers[0])["lock_name"]


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("name", ["Отчёт", "a/b", "café"])
def test_no_lock_name_is_made_of_a_name_that_would_lose_characters(boss: Client, name: str) -> None:  # noqa: F811
    response = boss.post(reverse(ADD), filled(name=name))
    assert response.status_code == 200
    assert name in problems(response)["lock_name"] and "Write one here" in problems(response)["lock_name"]
    assert boss.post(reverse(ADD), filled(name=name, lock_name="report")).status_code == 302


@pytest.fixture
def declaring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the form declares a lock name."""
    task = exclusive_tasks()[filled()["task"]]
    monkeypatch.setattr(task, "exclusive_lock_name", "digests")


def test_an_empty_lock_name_is_that_of_the_task(boss: Client, declaring: None) -> None:  # noqa: F811
    assert boss.post(reverse(ADD), filled(name="north", strategy="database")).status_code == 302
    assert Schedule.objects.get().lock_id == "digests"
    told = problems(boss.post(reverse(ADD), filled(name="south", strategy="database")))["lock_name"]
    assert 'that of schedule "north"' in told  # two of one task share it only where somebody says so
    assert boss.post(reverse(ADD), filled(name="south", strategy="database", lock_name="south")).status_code == 302


def test_another_lock_name_than_that_of_calls_is_told(boss: Client, declaring: None) -> None:  # noqa: F811
    said = "The task declares the lock name digests"
    assert said in text(preview(boss, name="south", lock_name="south"))
    assert said not in text(preview(boss, name="south", lock_name="digests"))
    assert said not in text(preview(boss, name="south"))
    schedule = make_schedule("apart", every_seconds=60, lock_name="apart")
    assert said in text(boss.get(reverse(CHANGE, args=[schedule.pk])).content.decode())


def test_a_made_lock_name_is_not_that_of_another_schedule(boss: Client) -> None:  # noqa: F811
    assert boss.post(reverse(ADD), filled(name="a b")).status_code == 302
    response = boss.post(reverse(ADD), filled(name="a-b", strategy="none"))
    assert 'that of schedule "a b"' in problems(response)["lock_name"]
    assert LockName.objects.get().alias_wanted == "database"
    assert boss.post(reverse(ADD), filled(name="a-b", lock_name="a-b")).status_code == 302
    Schedule.objects.all().delete()
    assert boss.post(reverse(ADD), filled(name="a b")).status_code == 302


def as_shown(client: Client, page: str) -> dict[str, Any]:
    """What a browser would send of the form on a page."""
    form = client.get(page).context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    shown = {name: form.fields[name].widget.format_value(value) for name, value in values.items()}
    shown |= {name: "on" for name in ("enabled", "once_per_tick") if values[name]}
    return {name: value[0] if isinstance(value, list) else value for name, value in shown.items() if value}


def test_a_form_does_not_undo_what_others_did_while_it_was_open(boss: Client) -> None:  # noqa: F811
    schedule = make_schedule("billing", every_seconds=60)
    edit = reverse(CHANGE, args=[schedule.pk])
    given = {**as_shown(boss, edit), "notes": "call Ada first"}
    assert 'name="shown"' in boss.get(edit).content.decode()
    call_command("aegis", "schedules", "disable", "billing", "--reason", "it harms", stdout=StringIO())
    retarget("billing", "redis", now=True, why="", who="ben")
    response = boss.post(edit, given)
    assert response.status_code == 200
    told = problems(response)["__all__"]
    assert "enabled (by" in told and "strategy (by ben at" in told and "notes" not in told
    stored = Schedule.objects.get()
    assert (stored.enabled, stored.notes, stored.lock.alias_wanted) == (False, "", "redis")
    page = response.content.decode()
    assert "call Ada first" in page
    again = re.search(r'name="shown" value="([^"]+)"', page)
    assert again is not None and again[1] != given["shown"]
    given = {name: value for name, value in given.items() if name != "enabled"}
    assert boss.post(edit, {**given, "strategy": "redis", "shown": again[1]}).status_code == 302
    stored = Schedule.objects.get()
    assert (stored.enabled, stored.notes, stored.lock.alias_wanted) == (False, "call Ada first", "redis")


def test_a_form_that_is_sent_twice_or_beside_a_pause_is_stored(boss: Client) -> None:  # noqa: F811
    edit = reverse(CHANGE, args=[make_schedule("billing", every_seconds=60).pk])
    given = {**as_shown(boss, edit), "notes": "twice"}
    assert boss.post(edit, given).status_code == 302
    assert boss.post(edit, given).status_code == 302
    given = {**as_shown(boss, edit), "notes": "beside a pause"}
    pausing.pause("billing", why="moving", who="ben")
    assert boss.post(edit, given).status_code == 302
    stored = Schedule.objects.get()
    assert (stored.notes, stored.pause_reason) == ("beside a pause", "moving")


def test_what_goes_with_the_form_tells_no_argument_and_may_be_anything(boss: Client) -> None:  # noqa: F811
    schedule = make_schedule("billing", every_seconds=60, kwargs={"card": "4111"})
    edit = reverse(CHANGE, args=[schedule.pk])
    given = as_shown(boss, edit)
    assert "4111" not in given["shown"]
    for shown in (
        "",
        "nonsense",
        "9" * 40,
        "." * 26,
        given["shown"].replace(given["shown"].split(".")[0], "x" * 9, 1),
    ):
        assert boss.post(edit, {**given, "shown": shown}).status_code in (200, 302)


def test_cron_is_suggested_in_words(admin_client: Client) -> None:
    html = admin_client.get(reverse("admin:aegis_scheduler_schedule_add")).content.decode()
    assert 'list="cron-presets"' in html and '<option value="0 2 * * *" label="daily at 02:00">' in html
