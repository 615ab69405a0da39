"""django-celery-beat's own pages: read-only by default, hidden or kept where that is asked for."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from celery import current_app
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import path, reverse
from django_celery_beat.admin import PeriodicTaskAdmin
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from scheduler.beat_admin import Guarded, ReadOnly, check_beat_admin, take_over

pytestmark = pytest.mark.django_db

LIST = "admin:django_celery_beat_periodictask_changelist"
FORM = "admin:django_celery_beat_periodictask_change"


@pytest.fixture
def task() -> PeriodicTask:
    every = IntervalSchedule.objects.create(every=1, period="hours")
    return PeriodicTask.objects.create(name="theirs", task="some.task", interval=every)


@pytest.fixture
def guarded(settings: Any) -> str:
    """The address of the list on a site with the setting ``guarded``."""
    urls = ModuleType("guarded_urls")
    urls.urlpatterns = [path("admin/", site_with("guarded", settings).urls)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urls
    return "/admin/django_celery_beat/periodictask/"


def member(client: Client, *codenames: str) -> None:
    user = User.objects.create_user("-".join(codenames), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)


def queued() -> int:
    with current_app.connection_for_write() as connection:
        found: int = connection.default_channel.client.llen("celery")
    return found


def site_with(setting: str, settings: Any) -> admin.AdminSite:
    site = admin.AdminSite("other")
    site.register(PeriodicTask, PeriodicTaskAdmin)
    settings.AEGIS = {"BEAT_ADMIN": setting}
    take_over(site)
    return site


@pytest.mark.parametrize("action", ["enable_tasks", "disable_tasks", "run_tasks", "toggle_tasks", "delete_selected"])
@pytest.mark.parametrize("who", ["viewer", "superuser"])
def test_a_forged_action_changes_nothing(client: Client, task: PeriodicTask, action: str, who: str) -> None:
    user = User.objects.create_user("eve", is_staff=True, is_superuser=who == "superuser")
    user.user_permissions.add(Permission.objects.get(codename="view_periodictask"))
    client.force_login(user)
    page = client.get(reverse(LIST)).content.decode()
    assert "theirs" in page
    assert 'name="action"' not in page
    forged = {"action": action, "_selected_action": [task.pk], "index": 0, "post": "yes"}
    client.post(reverse(LIST), forged)
    stored = PeriodicTask.objects.get()
    assert (stored.enabled, stored.total_run_count, stored.last_run_at) == (True, 0, None)


def test_its_form_is_read_by_all_and_changed_by_nobody(client: Client, task: PeriodicTask) -> None:
    client.force_login(User.objects.create_superuser("boss"))
    page = client.get(reverse(FORM, args=[task.pk]))
    assert page.status_code == 200
    assert "_save" not in page.content.decode()
    assert client.post(reverse(FORM, args=[task.pk]), {"name": "ours"}).status_code == 403
    assert client.get(reverse("admin:django_celery_beat_periodictask_add")).status_code == 403
    assert client.post(reverse("admin:django_celery_beat_periodictask_delete", args=[task.pk])).status_code == 403
    assert PeriodicTask.objects.get().name == "theirs"


ACTIONS = ["enable_tasks", "disable_tasks", "toggle_tasks", "run_tasks"]


def test_guarded_actions_are_neither_shown_to_nor_run_for_a_viewer(
    client: Client, task: PeriodicTask, guarded: str
) -> None:
    member(client, "view_periodictask")
    page = client.get(guarded).content.decode()
    assert "theirs" in page and not any(action in page for action in (*ACTIONS, "delete_selected"))
    before = queued()
    for action in ACTIONS:
        client.post(guarded, {"action": action, "_selected_action": [task.pk], "index": 0})
    assert PeriodicTask.objects.get().enabled and queued() == before
    assert client.post(f"{guarded}{task.pk}/change/", {"name": "ours"}).status_code == 403


def test_guarded_pages_are_a_working_tool_for_those_who_may_change_rows(
    client: Client, task: PeriodicTask, guarded: str
) -> None:
    PeriodicTask.objects.update(task="aegis_site.demo.tasks.send_digest")
    member(client, "view_periodictask", "change_periodictask")
    page = client.get(guarded).content.decode()
    assert all(action in page for action in ACTIONS) and "delete_selected" not in page
    chosen = {"_selected_action": [task.pk], "index": 0}
    client.post(guarded, {"action": "disable_tasks", **chosen})
    assert not PeriodicTask.objects.get().enabled
    before = queued()
    client.post(guarded, {"action": "run_tasks", **chosen})
    assert queued() == before + 1
    form = client.get(f"{guarded}{task.pk}/change/").content.decode()
    assert "_save" in form and "readable_crontabs" not in form
    given = {"name": "ours", "task": "some.task", "interval": task.interval_id, "args": "[]", "kwargs": "{}"}
    assert client.post(f"{guarded}{task.pk}/change/", {**given, "headers": "{}"}).status_code == 302
    assert PeriodicTask.objects.get().name == "ours"
    assert client.get(f"{guarded}add/").status_code == 403


def test_every_page_of_beats_is_taken_over() -> None:
    theirs = [page for model, page in admin.site._registry.items() if model._meta.app_label == "django_celery_beat"]
    assert len(theirs) == 5
    assert all(isinstance(page, ReadOnly) for page in theirs)


def test_the_setting_hides_keeps_or_takes_over(settings: Any) -> None:
    assert PeriodicTask not in site_with("hide", settings)._registry
    assert isinstance(site_with("readonly", settings)._registry[PeriodicTask], ReadOnly)
    assert isinstance(site_with("guarded", settings)._registry[PeriodicTask], Guarded)
    site = site_with("keep", settings)
    assert not isinstance(site._registry[PeriodicTask], ReadOnly)
    settings.AEGIS = {"BEAT_ADMIN": "readonly"}
    take_over(site)
    take_over(site)
    assert type(site._registry[PeriodicTask]).__mro__.count(ReadOnly) == 1


@pytest.mark.parametrize(
    ("setting", "ids"),
    [
        ("hide", []),
        ("readonly", []),
        ("guarded", []),
        ("keep", ["aegis.scheduler.W009"]),
        ("no", ["aegis.scheduler.E014"]),
    ],
)  # fmt: skip
def test_keeping_is_warned_of(settings: Any, setting: str, ids: list[str]) -> None:
    settings.AEGIS = {"BEAT_ADMIN": setting}
    assert [found.id for found in check_beat_admin()] == ids
