"""``manage.py check``: what is known without a store, each problem with its id and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.core.checks import CheckMessage, run_checks
from django.db import connections
from django.test import override_settings
from psycopg import IsolationLevel

from locks.backends.database import DatabaseLeaseBackend
from locks.checks import check_times
from scheduler import checks, exclusive_task, visibility

NONE = {"BACKEND": "locks.backends.none.NoLockBackend"}
DATABASE = {"BACKEND": "locks.backends.database.DatabaseLeaseBackend"}
OPTIMISTIC = {"BACKEND": "locks.backends.claim.OptimisticClaimBackend"}


def ids(found: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in found)
    return [str(message.id).removeprefix("aegis.scheduler.") for message in found]


@pytest.fixture
def conf() -> Iterator[Any]:
    """Set what Celery has read from a project's settings, until the end of the test."""
    before: dict[str, Any] = {}

    def set_to(**given: Any) -> None:
        for name, value in given.items():
            before.setdefault(name, current_app.conf.get(name))
            current_app.conf[name] = value

    yield set_to
    for name, value in before.items():
        current_app.conf[name] = value


@pytest.fixture
def options(conf: Any) -> Any:
    return lambda **given: conf(broker_transport_options=given)


@pytest.fixture
def declared() -> Iterator[Any]:
    """Declare exclusive tasks that are forgotten afterwards."""
    names: list[str] = []

    def declare(name: str, **given: Any) -> None:
        names.append(name)

        @exclusive_task(name=name, **given)
        def body(context: Any) -> None: ...

    yield declare
    current_app.finalize(auto=True)
    for name in names:
        current_app.tasks.pop(name, None)


def test_the_projects_own_settings_are_clean() -> None:
    assert [message for message in run_checks(tags=["aegis"]) if (message.id or "").startswith("aegis.")] == []


@pytest.mark.parametrize(
    ("aegis", "locks", "found"),
    [
        ({}, {"default": DATABASE}, []),
        ({"HARTBEAT": 1}, {"default": DATABASE}, ["E001"]),
        ({"HEARTBEAT": 3}, {"default": DATABASE}, ["E002"]),
        ({"SILENCE_GRACE": 5.9}, {"default": DATABASE}, ["E002"]),
        ({}, {}, ["E003"]),
        ({"BEAT_LOCK": "other"}, {"default": DATABASE}, ["E003"]),
        ({"HEARTBEAT": "2"}, {"default": DATABASE}, ["E005"]),
        ({"PASS_INTERVAL": 0}, {"default": DATABASE}, ["E005"]),
        ({"BATCH": True}, {"default": DATABASE}, ["E005"]),
        ({"KEEP_DAYS": 0}, {"default": DATABASE}, ["E005"]),
        ({"KEEP_DAYS": 1.5}, {"default": DATABASE}, ["E005"]),
        ({"KEEP_DAYS": 36_500}, {"default": DATABASE}, []),
        ({}, {"default": NONE}, ["E006"]),
        ({"BEAT_LOCK": "claim"}, {"default": DATABASE, "claim": OPTIMISTIC}, ["E006"]),
        ({"BEAT_TTL": 0.05}, {"default": DATABASE}, ["E007"]),
        ({"BEAT_TTL": 2.9}, {"default": DATABASE}, ["W004"]),
        ({"BEAT_TTL": 3.0}, {"default": DATABASE}, []),
    ],
)
def test_the_aegis_setting(aegis: dict[str, Any], locks: dict[str, Any], found: list[str]) -> None:
    with override_settings(AEGIS=aegis, LOCKS=locks):
        assert ids(checks.check_settings()) == found


def test_local_times() -> None:
    with override_settings(USE_TZ=False):
        assert ids(checks.check_settings()) == ["E004"]


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("django_celery_beat.schedulers:DatabaseScheduler", ["W001"]),
        ("celery.beat:PersistentScheduler", ["W001"]),  # CELERY_BEAT_SCHEDULER, and an app without the namespace
        ("scheduler.beat:CatalogScheduler", []),
        ("scheduler.beat.CatalogScheduler", []),
        ("aegis", []),
    ],
)
def test_the_scheduler_that_celery_has_read(named: str, found: list[str], conf: Any) -> None:
    conf(beat_scheduler=named)
    assert ids(checks.check_beat()) == found


# the database


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, []),
        ({"isolation_level": IsolationLevel.READ_COMMITTED}, []),
        ({"isolation_level": IsolationLevel.READ_UNCOMMITTED}, ["E011"]),
        ({"isolation_level": IsolationLevel.REPEATABLE_READ}, ["E011"]),
        ({"isolation_level": 4}, ["E011"]),
        ({"isolation_level": "serializable"}, ["E011"]),
        ({"options": "-c search_path=billing"}, []),
        ({"options": r"-c default_transaction_isolation=read\ committed"}, []),
        ({"options": r"-c default_transaction_isolation=repeatable\ read -c work_mem=5MB"}, ["E011"]),
        ({"options": "--default-transaction-isolation=serializable"}, ["E011"]),
        ({"options": "-cdefault_transaction_isolation=serializable", "isolation_level": 2}, []),
    ],
)
def test_the_isolation_level(options: dict[str, Any], found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", options)
    assert ids(_of_the_database()) == found


def test_autocommit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "AUTOCOMMIT", False)
    assert ids(_of_the_database()) == ["E012"]


def _of_the_database() -> list[CheckMessage]:
    return [one for one in run_checks(tags=["aegis"]) if "DATABASES" in one.msg]


# the visibility time-out


def test_the_default_and_the_one_place_that_is_read(options: Any) -> None:
    assert (visibility.effective().value, visibility.effective().given) == (3600, False)
    assert visibility.right_place() == "CELERY_BROKER_TRANSPORT_OPTIONS['visibility_timeout']"
    options(socket_timeout=3, visibility_timeout=7200)
    with override_settings(CELERY_BROKER_TRANSPORT_OPTIONS={"visibility_timeout": 7200}):
        assert visibility.effective() == visibility.Visibility(value=7200, given=True)
        assert checks.check_broker() == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("BROKER_TRANSPORT_OPTIONS", {"visibility_timeout": 7200}, "BROKER_TRANSPORT_OPTIONS['visibility_"),
        ("CELERY_VISIBILITY_TIMEOUT", 7200, "CELERY_VISIBILITY_TIMEOUT = 7200"),
        ("VISIBILITY_TIMEOUT", "7200", "VISIBILITY_TIMEOUT = 7200"),
        ("CELERY_BROKER_VISIBILITY_TIMEOUT", 7200, "CELERY_BROKER_VISIBILITY_TIMEOUT = 7200"),
        ("CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS", {"visibility_timeout": 7200}, "CELERY_RESULT_BACKEND_"),
        ("CELERY_BROKER_TRANSPORT_OPTIONS", {"VISIBILITY_TIMEOUT": 7200}, "['VISIBILITY_TIMEOUT'] = 7200"),
        ("CELERY_BROKER_TRANSPORT_OPTIONS", {"visibility-timeout": 7200}, "['visibility-timeout'] = 7200"),
        ("CELERY_BROKER_TRANSPORT_OPTIONS", {"options": {"visibility_timeout": 7200}}, "['options']['visibility_"),
    ],
)  # fmt: skip
def test_a_place_that_nothing_reads(name: str, value: Any, told: str) -> None:
    if name == "CELERY_BROKER_TRANSPORT_OPTIONS":
        value = {"socket_timeout": 3, **value}
    with override_settings(**{name: value}):
        (message,) = checks.check_broker()
    assert message.id == "aegis.scheduler.W002"
    assert told in message.msg
    assert "the visibility time-out is 3600 s" in message.msg
    assert "CELERY_BROKER_TRANSPORT_OPTIONS['visibility_timeout']" in str(message.hint)


def test_an_attribute_that_nothing_reads(conf: Any) -> None:
    conf(visibility_timeout=7200)
    assert "app.conf.visibility_timeout = 7200" in checks.check_broker()[0].msg


def test_a_broker_url_that_celery_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what looks like the place for the time-out: Celery takes no options from the URL."""
    for url in (
        f"{current_app.conf.broker_url}?visibility_timeout=7200",
        "carrier-pigeon://u:hunter2@host/",
        "amqp://u:hunter2/unquoted@host:5672//",
        "amqp://u:hunter2'#unquoted@host:5672//",
    ):
        monkeypatch.setenv("CELERY_BROKER_URL", url)
        (message,) = checks.check_broker()
        assert message.id == "aegis.scheduler.E010"
        assert "hunter2" not in message.msg


def test_a_value_that_is_repeated_elsewhere_is_no_mistake() -> None:
    with override_settings(BROKER_VISIBILITY_TIMEOUT=3600):
        assert checks.check_broker() == []


@pytest.mark.parametrize("value", ["7200", 0, -1, None, True])
def test_a_value_that_workers_cannot_calculate_with(options: Any, value: Any) -> None:
    options(socket_timeout=3, visibility_timeout=value)
    expected = [] if value is None else ["E008"]  # None: as if this transport had none
    assert [found for found in ids(checks.check_broker()) if found != "W002"] == expected


def test_a_broker_without_time_outs(options: Any) -> None:
    options()
    assert ids(checks.check_broker()) == ["W003"]


def test_rabbitmq_calls_its_time_out_otherwise(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://u:hunter2@127.0.0.1:1//")
    options(socket_timeout=3)
    (message,) = checks.check_broker()
    assert message.id == "aegis.scheduler.W003" and "'read_timeout': 3" in str(message.hint)
    options(read_timeout=3)
    assert checks.check_broker() == []


@pytest.mark.parametrize(
    ("accepted", "found"),
    [(["pickle"], ["W010"]), ([], ["W010"]), (["json", "pickle"], []), (["application/json"], []), (None, [])],
)
def test_content_that_workers_refuse(conf: Any, accepted: list[str] | None, found: list[str]) -> None:
    conf(accept_content=accepted)
    assert ids(checks.check_broker()) == found


# tasks


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"lock": "nowhere"}, ["W005"]),
        ({"lock": "advisory", "on_lost": "kill"}, []),
        ({"lock": "optimistic", "on_lost": "kill", "time_limit": 5}, ["W006"]),
        ({"lock": "optimistic", "time_limit": 6}, ["W007"]),
        ({"lock": "optimistic", "time_limit": 6, "ttl": 7}, []),
        ({"lock": "optimistic", "time_limit": 5}, []),
        ({"lock": "database", "time_limit": 600}, []),
    ],
)
def test_what_a_task_declares(declared: Any, given: dict[str, Any], found: list[str]) -> None:
    declared("checks.task", **given)
    assert ids(checks.check_tasks()) == found


def test_two_strategies_under_one_lock_name(declared: Any) -> None:
    declared("checks.first", lock="database", lock_name="checks.shared")
    declared("checks.second", lock="database", lock_name="checks.shared")
    declared("checks.apart", lock="redis", lock_name="checks.alone")
    assert checks.check_tasks() == []
    declared("checks.third", lock="redis", lock_name="checks.shared")
    (message,) = checks.check_tasks()
    assert message.id == "aegis.scheduler.W008" and "checks.shared" in message.msg
    assert "checks.first with 'database', checks.second with 'database', checks.third with 'redis'" in message.msg


def test_two_strategies_under_names_that_differ_in_capitals(declared: Any) -> None:
    declared("checks.tasks.Sync", lock="database")
    declared("checks.other", lock="redis", lock_name="checks.tasks.sync")
    assert ids(checks.check_tasks()) == ["W008"]


def test_a_module_of_tasks_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ImportError("no module named 'stripe' (password=hunter2)")

    monkeypatch.setattr("scheduler.registry._imported", set())
    monkeypatch.setattr(current_app.loader, "import_default_modules", refuse)
    (message,) = checks.check_tasks()
    assert message.id == "aegis.scheduler.E009"
    assert "stripe" in message.msg
    assert "hunter2" not in message.msg


def test_celery_may_run_the_checks_while_it_imports_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its Django fixup does: each would call the other without an end."""
    asked: list[int] = []

    def import_and_check() -> None:
        asked.append(1)
        checks.check_tasks()

    monkeypatch.setattr("scheduler.registry._imported", set())
    monkeypatch.setattr(current_app.loader, "import_default_modules", import_and_check)
    checks.check_tasks()
    assert asked == [1]


# of locks


class SeldomRenewed(DatabaseLeaseBackend):
    """A backend made elsewhere, whose author took a lease of 45 s and a renewal of 30 s for safe."""

    @property
    def renew_every(self) -> float:
        return self.ttl / 1.5


@pytest.mark.parametrize(
    ("kind", "params", "found"),
    [
        (DatabaseLeaseBackend, {"TTL": 10}, []),
        (DatabaseLeaseBackend, {"TTL": 3.0}, ["aegis.locks.W002"]),
        (SeldomRenewed, {"TTL": 45}, ["aegis.locks.E009"]),
    ],
)
def test_a_lease_outlives_a_hiccup(kind: Any, params: dict[str, Any], found: list[str]) -> None:
    backend = kind("x", {**DATABASE, **params})
    assert [message.id for message in check_times(backend)] == found
    assert all(re.search("Renew|Raise", str(message.hint)) for message in check_times(backend))


def test_a_slow_redis_may_not_outlast_the_lease() -> None:
    entry = {"BACKEND": "locks.backends.redis.RedisLockBackend", "LOCATION": "redis://127.0.0.1:1/0", "TTL": 4}
    with override_settings(LOCKS={"redis": {**entry, "OPTIONS": {"SOCKET_TIMEOUT": 2}}}):
        assert "aegis.locks.W002" in [message.id for message in run_checks(tags=["aegis"])]
    with override_settings(LOCKS={"redis": entry}):
        assert "aegis.locks.W002" not in [message.id for message in run_checks(tags=["aegis"])]
