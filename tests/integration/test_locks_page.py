"""The locks page, the release by force and its command: what is shown, compared, kept on record, and refused."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from aegis_site.embedded import Services
from locks import lock_backends
from locks.base import Lease
from scheduler import held, releasing
from scheduler.changes import Refused
from scheduler.context import RunContext
from scheduler.models import Execution, LockRelease
from scheduler.runner import run
from scheduler.signals import lock_force_released
from scheduler.states import ExecutionState
from tests.integration.test_runner import nothing
from tests.support import pages
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick
from tests.support.pages import staff
from tests.support.roles import plain_role

pytestmark = pytest.mark.django_db(transaction=True)

LEASES = ("database", "optimistic", "advisory", "row_lock", "redis", "redlock")
HOSTILE = "<script>alert('&')</script>"


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(staff("olga", "view_lock", "release_lock"))
    return client


@pytest.fixture
def take() -> Iterator[Callable[..., Lease]]:
    """Leases of this process, given back at the end."""
    taken: list[Lease] = []

    def acquire(alias: str, name: str = "billing", ttl: float = 60) -> Lease:
        backend = lock_backends[alias]
        lease = backend.acquire(name, ttl=min(ttl, backend.maximum_ttl))
        assert lease is not None
        taken.append(lease)
        return lease

    yield acquire
    for lease in taken:
        lock_backends[lease.alias].release(lease)


def running(lease: Lease, **fields: Any) -> Execution:
    """The row of a run under the lease."""
    schedule = make_schedule(f"schedule of {lease.name}", alias=lease.alias, lock_name=lease.name)
    tick = make_tick(schedule, state="started", ttl=lease.ttl)
    now = database_now()
    facts: dict[str, Any] = {
        "tick": tick, "guarded": True, "lock_name": lease.name, "lock_alias": lease.alias, "state": "running",
        "lease_id": lease.lease_id, "token": 88, "worker": "worker@3", "pid": 64, "started_at": now,
        "heartbeat_at": now, "began": True,
    }  # fmt: skip
    return Execution.objects.create(**{**facts, **fields})


def page(client: Client) -> str:
    response = client.get(reverse("admin:aegis_scheduler_locks_changelist"))
    assert response.status_code == 200
    return response.content.decode()


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html[html.index("<h1") :]))


def url(lease: Lease, **changes: Any) -> str:
    query = {"alias": lease.alias, "name": lease.name, "lease": lease.lease_id, **changes}
    return f"{reverse('admin:aegis_scheduler_locks_release')}?{urlencode(query)}"


def post(client: Client, lease: Lease, /, **changes: Any) -> Any:
    given = {
        "alias": lease.alias,
        "name": lease.name,
        "lease": lease.lease_id,
        "reason": "host gone",
        "checked": "on",
    }
    given |= changes
    given = {key: value for key, value in given.items() if value is not None}
    return client.post(reverse("admin:aegis_scheduler_locks_release"), given, follow=True)


@pytest.mark.parametrize("alias", LEASES)
def test_every_store_shows_what_it_holds_and_lets_go_of_it(
    operator: Client, take: Callable[..., Lease], alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "STARTING", 3600.0)  # whatever the machine does: it began a moment ago only
    lease = take(alias)
    running(lease)
    shown = text(page(operator))
    assert "billing" in shown and alias in shown and "worker@3 pid 64" in shown and " 88 " in shown
    assert "Healthy" in shown
    response = post(operator, lease)
    assert f"Released: billing ({alias}), lease {lease.lease_id}." in response.content.decode()
    assert lock_backends[alias].inspect("billing") is None
    assert "Running without its lock" not in text(page(operator))


def test_an_overlap_after_a_release_by_force_names_it_as_its_cause(client: Client) -> None:
    schedule = make_schedule("billing")
    first, second = make_tick(schedule), make_tick(schedule)

    def hang(context: RunContext) -> None:
        (lease,) = Execution.objects.filter(state="running").values_list("lease_id", flat=True)
        released = releasing.release("database", context.lock_name, lease, why="host is gone", who="ana")
        assert released.result == "released"
        assert run(delivery_of(second), nothing).state is ExecutionState.EXECUTED

    assert run(delivery_of(first), hang).state is ExecutionState.EXECUTED  # over before its next renewal
    client.force_login(staff("viewer", "view_dashboard"))
    timeline = pages.url("timeline_changelist", selected=Execution.objects.get(tick=second).pk)
    said = pages.words(client.get(timeline).content.decode())
    assert "Cause: a lease was released by force; somebody ended it while its body was inside" in said
    LockRelease.objects.update(result="moved")
    assert "Cause: not known" in pages.words(client.get(timeline).content.decode())


def test_a_bounded_number_of_queries_whatever_is_held(
    operator: Client, take: Callable[..., Lease], django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        running(take("database", f"billing-{number}"))
    with django_assert_max_num_queries(12):
        shown = page(operator)
    assert shown.count('<th scope="row">') == 12


def test_a_live_lease_is_no_orphan_however_many_run(
    operator: Client, take: Callable[..., Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MOST", 2)
    monkeypatch.setattr(held, "STARTING", 0.0)
    for number in range(4):
        running(take("database", f"billing-{number}"))
    lost = take("redis", "lost")
    unlocked = running(lost, started_at=database_now() - timedelta(seconds=30))
    lock_backends["redis"].release(lost)
    shown = held.locks()
    assert [one.state for one in shown.held] == ["Healthy"] * 4
    assert [one.pk for one in shown.unlocked] == [unlocked.pk]


def test_states_have_words(operator: Client, take: Callable[..., Lease]) -> None:
    long_ago = database_now() - timedelta(minutes=5)
    running(take("database", "silent"), heartbeat_at=long_ago, started_at=long_ago)
    running(take("database", "over"), state="lost", started_at=long_ago, ended_at=long_ago + timedelta(seconds=5))
    running(take("database", "just-over"), state="executed", ended_at=database_now())
    late = take("database", "late", ttl=60)
    running(late)
    with transaction.atomic():
        from django.db import connection

        connection.cursor().execute(
            "UPDATE aegis_locks_lease SET expires_at = clock_timestamp() + interval '20 s' WHERE name = 'late'"
        )
    take("redis", "of-code")
    found = {row["name"]: row["state"] for row in json.loads(said("locks", "list", "--format", "json"))["locks"]}
    assert found == {
        "late": "Late renewal", "of-code": "Held by code", "over": "Orphan", "silent": "Orphan",
        "just-over": "Healthy",
    }  # fmt: skip
    shown = text(page(operator))
    assert re.search("its process has been silent for 30. s", shown) and "over (lost)" in shown


@pytest.mark.parametrize("alias", ["advisory", "row_lock"])
def test_a_lease_whose_age_is_not_told_is_not_called_healthy(take: Callable[..., Lease], alias: str) -> None:
    """The pages look with a role that is not the workers', and may not read their statistics."""
    make_schedule("orphan", alias=alias, lock_name="orphan")
    lease = take(alias, "orphan")
    with plain_role():
        (shown,) = held.locks().held
    assert (shown.info.lease_id, shown.info.grant_no) == (lease.lease_id, lease.grant_no)
    assert shown.state == held.OTHER and "since when it is held, this role is not told" in shown.why


def test_a_run_whose_lease_is_gone_is_named(operator: Client, take: Callable[..., Lease]) -> None:
    lease = take("redis")
    running(lease, started_at=database_now() - timedelta(seconds=30))
    post(operator, lease)
    assert "Running without its lock" in text(page(operator))


def test_a_release_is_compared_recorded_logged_and_told(
    operator: Client, take: Callable[..., Lease], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[LockRelease] = []

    def hear(sender: Any, release: LockRelease, **_: Any) -> None:
        heard.append(release)

    lock_force_released.connect(hear)
    lease = take("redis")
    running(lease)
    asked = operator.get(url(lease)).content.decode()
    for word in (str(lease.lease_id), "worker@3", "Last heartbeat", "a second run can start", "token 88"):
        assert word in text(asked)
    post(operator, lease, reason=HOSTILE)
    lock_force_released.disconnect(hear)
    row = LockRelease.objects.get()
    assert (row.who, row.reason, row.alias, row.lease_id) == ("olga", HOSTILE, "redis", lease.lease_id)
    assert row.result == "released" and row.released_by == User.objects.get() and row.holder and row.token
    assert heard == [row]
    entry = LogEntry.objects.get()
    assert entry.user.username == "olga" and entry.object_id == str(row.pk)
    assert "by force" in caplog.text and "olga" in caplog.text
    shown = page(operator)
    assert HOSTILE not in shown and "&lt;script&gt;" in shown


def test_a_lease_that_moved_is_left_alone(operator: Client, take: Callable[..., Lease]) -> None:
    seen = take("database")
    lock_backends["database"].release(seen)
    now_held = take("database")
    assert str(now_held.lease_id) in text(operator.get(url(seen)).content.decode())
    response = post(operator, seen)
    assert f"Not released. The lock is now held with lease {now_held.lease_id}" in response.content.decode()
    held = lock_backends["database"].inspect("billing")
    assert held is not None and held.lease_id == now_held.lease_id
    assert LockRelease.objects.get().result == "moved"


def test_a_lease_that_ended_by_itself_is_said_to_have(operator: Client, take: Callable[..., Lease]) -> None:
    seen = take("redis")
    lock_backends["redis"].release(seen)
    assert "is free. The lease ended by itself" in text(operator.get(url(seen)).content.decode())
    assert "the lease had ended by itself" in post(operator, seen).content.decode()
    assert LockRelease.objects.get().result == "free"


@pytest.mark.parametrize(
    ("changes", "said_so"),
    [
        ({"reason": ""}, "Give a reason"),
        ({"reason": "x" * 501}, "At most 500 characters"),
        ({"checked": None}, "Look at the worker first"),
        ({"lease": "nonsense"}, ""),
        ({"alias": "nosuch"}, "There is no strategy"),
        ({"name": "Not A Name"}, ""),
    ],
)
def test_an_incomplete_request_releases_nothing(
    operator: Client, take: Callable[..., Lease], changes: dict[str, Any], said_so: str
) -> None:
    lease = take("redis")
    response = post(operator, lease, **changes)
    assert response.status_code == 200 and said_so in response.content.decode()
    assert lock_backends["redis"].inspect("billing") is not None
    assert not LockRelease.objects.exists()


@pytest.mark.parametrize("codenames", [(), ("view_lock",), ("release_lock",), ("view_dashboard", "change_schedule")])
def test_without_both_permissions_nothing_can_be_released(
    client: Client, take: Callable[..., Lease], codenames: tuple[str, ...]
) -> None:
    client.force_login(staff("eve", *codenames))
    lease = take("redis")
    assert client.get(url(lease)).status_code == 403
    assert post(client, lease).status_code == 403
    assert lock_backends["redis"].inspect("billing") is not None and not LockRelease.objects.exists()
    if "view_lock" in codenames:
        assert "Release…" not in page(client)
    else:
        assert client.get(reverse("admin:aegis_scheduler_locks_changelist")).status_code == 403


def test_a_request_without_the_token_of_the_form_is_refused(take: Callable[..., Lease]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(staff("olga", "view_lock", "release_lock"))
    lease = take("redis")
    assert post(client, lease).status_code == 403
    assert lock_backends["redis"].inspect("billing") is not None


def test_a_user_releases_a_few_times_a_minute_over_all_processes(
    settings: Any, operator: Client, take: Callable[..., Lease]
) -> None:
    settings.AEGIS = {**getattr(settings, "AEGIS", {}), "RATE_LIMITS": {"force_release": 3}}
    user, answers = User.objects.get(), []
    gate = threading.Barrier(6)

    def ask() -> None:
        from django.db import connections

        gate.wait(10)
        try:
            answers.append(releasing.release("redis", "nothing", uuid.uuid4(), why="test", who=user).result)
        except Refused:
            answers.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert sorted(answers) == ["free"] * 3 + ["refused"] * 3
    lease = take("redis")
    response = post(operator, lease)
    assert response.status_code == 429 and "3 times within a minute" in response.content.decode()
    assert lock_backends["redis"].inspect("billing") is not None
    assert releasing.release("redis", "nothing", uuid.uuid4(), why="by shell", who="root").result == "free"


def test_a_store_that_is_down_is_a_row_and_the_page_stands(
    operator: Client, take: Callable[..., Lease], services: Services
) -> None:
    lease = take("redis")
    take("database", "still-shown")
    services.redis["locks"].pause()
    started = time.monotonic()
    shown = text(page(operator))
    took = time.monotonic() - started
    assert "redis: unreachable, locks unknown" in shown and "still-shown" in shown
    assert took < 10, took
    asked = text(operator.get(url(lease)).content.decode())
    assert "redis: unreachable" in asked and "Release lock" not in asked.split("Aegis")[-1].split("unreachable")[1]
    assert "unreachable" in post(operator, lease).content.decode() and not LockRelease.objects.exists()
    with pytest.raises(CommandError) as failed:
        said("locks", "list")
    assert failed.value.returncode == 69
    with pytest.raises(CommandError) as failed:
        said("locks", "release", "billing", "--alias", "redis", "--lease", str(lease.lease_id), "--reason", "r")
    assert failed.value.returncode == 69
    services.redis["locks"].resume()


def test_a_release_without_an_answer_is_on_record_as_not_known(
    take: Callable[..., Lease], services: Services
) -> None:
    lease = take("redis")
    services.redis["locks"].pause()
    row = releasing.release("redis", "billing", lease.lease_id, why="test", who="ada")
    services.redis["locks"].resume()
    assert row.result == "unknown" and "did not answer" in row.detail


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("aegis", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_the_command_lists_and_releases(take: Callable[..., Lease]) -> None:
    assert "No lock is held." in said("locks", "list")
    lease = take("database")
    assert str(lease.lease_id) in said("locks", "list") and "\x1b" not in said("locks", "list")
    asked = ("locks", "release", "billing", "--alias", "database", "--reason", "host gone", "--by", "ada")
    with pytest.raises(CommandError) as moved:
        said(*asked, "--lease", str(uuid.uuid4()))
    assert moved.value.returncode == 1 and str(lease.lease_id) in str(moved.value)
    with pytest.raises(CommandError, match="There is no strategy 'nosuch'") as unknown:
        said("locks", "release", "billing", "--alias", "nosuch", "--reason", "x", "--lease", str(lease.lease_id))
    assert unknown.value.returncode == 1
    assert "Released: billing" in said(*asked, "--lease", str(lease.lease_id))
    with pytest.raises(CommandError) as free:
        said(*asked, "--lease", str(lease.lease_id))
    assert free.value.returncode == 1
    assert list(LockRelease.objects.order_by("id").values_list("who", "result")) == [
        ("ada", "moved"), ("ada", "released"), ("ada", "free"),
    ]  # fmt: skip


def test_a_release_is_never_without_reason_or_name() -> None:
    for missing in ("reason", "who"):
        with pytest.raises(IntegrityError), transaction.atomic():
            LockRelease.objects.create(
                **{"name": "n", "alias": "redis", "lease_id": uuid.uuid4(), "reason": "r", "who": "w", missing: ""}
            )


def test_the_record_is_read_only(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    LockRelease.objects.create(name="n", alias="redis", lease_id=uuid.uuid4(), reason="r", who="w")
    row = LockRelease.objects.get()
    assert client.get(reverse("admin:aegis_scheduler_lockrelease_changelist")).status_code == 200
    change = reverse("admin:aegis_scheduler_lockrelease_change", args=[row.pk])
    assert client.get(change).status_code == 200 and client.post(change, {"reason": "other"}).status_code == 403
    assert client.get(reverse("admin:aegis_scheduler_lockrelease_add")).status_code == 403
