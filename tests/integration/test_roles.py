"""Every page, action and POST with every role: exactly what docs/reference/permissions.md says, and no more."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client
from django.urls import NoReverseMatch, get_resolver, reverse

from locks import lock_backends
from scheduler import running
from scheduler.models import Alert, Execution, Instance, LockRelease, Schedule, ScheduleChange
from scheduler.roles import ROLES, make_groups
from tests.integration.test_admin import filled
from tests.support.engine import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/reference/permissions.md"
APP = "aegis_scheduler"


class Rule(NamedTuple):
    method: str
    name: str
    needs: tuple[str, ...]
    roles: dict[str, bool]


def rules() -> Iterator[Rule]:
    """The rows of the table, one for each method and address."""
    table = PAGE.read_text().split("| page or action |")[1]
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        _, methods, names, needs, *said = [cell.strip() for cell in line.strip("|").split("|")]
        allowed = {role: word == "yes" for role, word in zip(ROLES, said, strict=True)}
        for method in methods.split():
            for name in re.findall(r"`(\w+)`", names):
                yield Rule(method, name, tuple(re.findall(r"`(\w+)`", needs)), allowed)


RULES = list(rules())


def names_of(patterns: Any) -> Iterator[str]:
    for pattern in patterns:
        if hasattr(pattern, "url_patterns"):
            yield from names_of(pattern.url_patterns)
        elif pattern.name:
            yield pattern.name


def test_every_address_is_in_the_table() -> None:
    known = {name.removeprefix(f"{APP}_") for name in names_of(get_resolver().url_patterns) if name.startswith(APP)}
    assert known == {rule.name for rule in RULES}


class World(NamedTuple):
    """One row of each kind, and what a POST to an address holds."""

    schedule: Schedule
    rows: dict[str, Any]
    bodies: dict[str, dict[str, Any]]

    def path(self, name: str) -> str:
        model, _, view = name.partition("_")
        pk = self.rows[model].pk if model in self.rows else None
        choices: tuple[list[Any], ...] = ([], ["csv"]) if view == "export" else ([], [pk], [pk, self.rows["tick"].pk])
        for args in choices:
            try:
                return reverse(f"admin:{APP}_{name}", args=args)
            except NoReverseMatch:
                continue
        raise AssertionError(f"no address {name}")


@pytest.fixture
def world() -> Iterator[World]:
    schedule = make_schedule("billing", every_seconds=3600)
    tick = running.ask("billing", key="k", who="ada")
    lease = lock_backends["database"].acquire("spare", ttl=60)
    assert lease is not None
    execution = Execution.objects.create(
        tick=tick, guarded=True, lock_name=schedule.lock_id, lock_alias="database", state="prevented", worker="w"
    )
    rows = {
        "schedule": schedule,
        "tick": tick,
        "execution": execution,
        "instance": Instance.objects.create(kind="worker", name="w", host="h", pid=1),
        "lockname": schedule.lock,
        "schedulechange": ScheduleChange.objects.first(),
        "lockrelease": LockRelease.objects.create(
            name="n", alias="redis", lease_id=uuid.uuid4(), reason="r", who="w"
        ),
        "alert": Alert.objects.create(**alert_fields()),
    }
    one = {"schedule": schedule.pk, "reason": "walk"}
    form = filled(name="billing", lock_name=schedule.lock_id, notes="walked")
    bodies = {
        "schedule_add": filled(name="another"),
        "schedule_change": form,
        "schedule_preview": form,
        "schedule_preview_of": form,
        "schedule_delete": {"post": "yes"},
        "schedule_pause": one,
        "schedule_resume": one,
        "schedule_enable": one,
        "schedule_disable": one,
        "schedule_run": {**one, "key": uuid.uuid4()},
        "schedule_strategy": {**one, "to": "redis", "apply": "idle"},
        "locks_release": {
            "alias": "database",
            "name": "spare",
            "lease": lease.lease_id,
            "reason": "r",
            "checked": "on",
        },
        "alert_detail": {"do": "acknowledge", "acknowledge-note": "seen"},
        "alert_change": {"do": "acknowledge", "acknowledge-note": "seen"},
    }
    yield World(schedule, rows, bodies)
    lock_backends["database"].release(lease)


def alert_fields() -> dict[str, Any]:
    """What an alert cannot be stored without."""
    given: dict[str, Any] = {}
    for field in Alert._meta.concrete_fields:
        if field.has_default() or field.null or field.primary_key or getattr(field, "db_default", None) is not None:
            continue
        if field.choices:
            given[field.name] = next(iter(field.choices))[0]
        elif field.get_internal_type() in ("CharField", "TextField"):
            given[field.name] = "walk"
    return {**given, **ALERT}


ALERT: dict[str, Any] = {"rule": "overlap"}


def stored() -> dict[str, list[Any]]:
    """Everything in the tables that an operator could change, but for what sessions and logins leave."""
    kept = {}
    for app in (APP, "aegis_locks", "auth"):
        for model in apps.get_app_config(app).get_models():
            if model._meta.managed and not model._meta.proxy and model is not User:
                kept[model._meta.label] = sorted(map(repr, model._base_manager.values_list()))
    return kept


def send(client: Client, world: World, rule: Rule) -> Any:
    path = world.path(rule.name)
    if rule.method == "GET":
        return client.get(path, {"schedule": world.schedule.pk} if rule.name.startswith("schedule_") else {})
    return client.post(path, world.bodies.get(rule.name, {}))


@pytest.mark.parametrize("role", list(ROLES))
def test_each_role_may_do_what_the_table_says_and_nothing_else(world: World, role: str) -> None:
    make_groups()
    user = User.objects.create_user("walker", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    before, wrong = stored(), []
    for rule in sorted(RULES, key=lambda rule: rule.roles[role]):  # first all that is refused
        if not rule.roles[role]:
            status = send(client, world, rule).status_code
            if status != 403:
                wrong.append((rule.method, rule.name, status))
    assert wrong == [] and stored() == before, f"{role} was let in"
    for rule in [*filter(lambda rule: rule.method == "GET", RULES), *filter(changing, RULES)]:
        if rule.roles[role]:
            status = send(client, world, rule).status_code
            if status not in (200, 302):
                wrong.append((rule.method, rule.name, status))
    assert wrong == [], f"{role} was kept out"
    if role != "Aegis viewer":
        assert stored() != before


def changing(rule: Rule) -> bool:
    """POSTs; what deletes the schedule goes last."""
    return rule.method == "POST" and rule.name != "schedule_delete"


def test_each_permission_of_the_table_is_needed_and_together_they_are_enough(world: World) -> None:
    before, wrong = stored(), []
    wanted = [rule for rule in RULES if rule.needs]
    for rule in wanted:
        for missing in rule.needs:
            if missing == "view_schedule" and rule.method == "GET" and rule.name in EDITABLE:
                continue  # who may change a schedule may see it
            others = [one for one in every() if one != missing]
            if missing == "view_schedule" and rule.name.startswith("schedule_"):
                others = [one for one in rule.needs if one != missing]
            status = send(with_permissions("lacking", *others), world, rule).status_code
            if status != 403:
                wrong.append(f"{rule.method} {rule.name} without {missing}: {status}")
    assert wrong == [] and of_aegis(stored()) == of_aegis(before)
    for rule in sorted(wanted, key=lambda rule: (rule.method, rule.name == "schedule_delete")):
        status = send(with_permissions("just", *rule.needs), world, rule).status_code
        if status not in (200, 302):
            wrong.append(f"{rule.method} {rule.name}: {status}")
    assert wrong == []


def of_aegis(tables: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Without the permissions that the test itself gives."""
    return {name: rows for name, rows in tables.items() if name.startswith("aegis")}


EDITABLE = (
    "schedule_changelist",
    "schedule_page",
    "schedule_data",
    "schedule_ran",
    "schedule_change",
    "schedule_history",
)


def every() -> list[str]:
    return [one.partition(".")[2] for one in ROLES["Aegis admin"] if one.startswith(f"{APP}.")]


def with_permissions(name: str, *codenames: str) -> Client:
    user, _ = User.objects.get_or_create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames, content_type__app_label=APP))
    client = Client()
    client.force_login(user)
    return client


def test_strangers_are_sent_to_the_login_and_staff_without_any_permission_is_refused(world: World) -> None:
    before, wrong, nobody = stored(), [], with_permissions("nobody")
    for rule in RULES:
        stranger, refused = send(Client(), world, rule), send(nobody, world, rule)
        if stranger.status_code != 302 or "/login/" not in stranger["Location"] or refused.status_code != 403:
            wrong.append(f"{rule.method} {rule.name}: {stranger.status_code}, {refused.status_code}")
    assert wrong == [] and of_aegis(stored()) == of_aegis(before)


def test_the_command_makes_the_groups_and_takes_nothing_away() -> None:
    def said(*arguments: str) -> str:
        out = StringIO()
        call_command("aegis", "roles", *arguments, stdout=out, stderr=StringIO())
        return out.getvalue()

    assert "release_lock" in said("--dry-run") and not Group.objects.exists()
    said()
    viewer = Group.objects.get(name="Aegis viewer")
    assert viewer.permissions.count() == len(ROLES["Aegis viewer"])
    extra = Permission.objects.get(codename="add_user")
    viewer.permissions.add(extra)
    viewer.permissions.remove(Permission.objects.get(codename="view_lock"))
    said()
    assert set(viewer.permissions.values_list("codename", flat=True)) >= {"add_user", "view_lock"}
    assert Group.objects.count() == 3


def test_the_document_names_what_each_role_has() -> None:
    text, before = PAGE.read_text(), 0
    for role, wanted in ROLES.items():
        (row,) = re.findall(rf"^\| {role} \|.*$", text, re.M)
        own = [one.partition(".")[2] for one in wanted[before:] if one.startswith(f"{APP}.")]
        assert [name for name in re.findall(r"`(\w+)`", row) if name != "aegis_locks"] == own
        before = len(wanted)
