from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from locks import InvalidLockBackend, backends, lock_backends
from locks.backends.base import BaseLockBackend
from locks.checks import check_lock_settings

NONE = {"BACKEND": "locks.backends.none.NoLockBackend"}
DATABASE = {"BACKEND": "locks.backends.database.DatabaseLeaseBackend"}
ADVISORY = {"BACKEND": "locks.backends.advisory.AdvisoryLockBackend"}
ROW_LOCK = {"BACKEND": "locks.backends.row_lock.RowLockBackend"}
REDIS = {"BACKEND": "locks.backends.redis.RedisLockBackend", "LOCATION": "redis://127.0.0.1:1/0"}
REDLOCK = {
    "BACKEND": "locks.backends.redlock.RedlockBackend",
    "LOCATION": ["redis://a:1", "redis://b:1", "redis://c:1"],
}


def ids(entry: Any) -> list[str]:
    with override_settings(LOCKS={"x": entry}):
        return sorted(message.id.rpartition(".")[2] for message in check_lock_settings() if message.id)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (None, ["E001"]),
        ({}, ["E001"]),
        ({"BACKEND": "nothing.There"}, ["E001"]),
        ({**NONE, "Ttl": 1}, ["E002"]),
        ({**NONE, "TTL": None}, ["E003"]),
        ({**NONE, "TTL": "10"}, ["E003"]),
        ({**REDIS, "TTL": 0.01}, ["E003"]),
        ({**REDIS, "KEY_PREFIX": "{x}"}, ["E004"]),
        ({**REDIS, "KEY_PREFIX": None}, ["E004"]),
        ({**REDIS, "OPTIONS": ["x"]}, ["E005"]),
        ({**REDIS, "OPTIONS": {"SOCKET_TIMEOUT": 0}}, ["E005"]),
        ({**REDIS, "OPTIONS": {"socket_timeout": 1}}, ["E005"]),
        ({**DATABASE, "OPTIONS": {"LOCK_DELAY": -1}}, ["E005"]),
        ({**NONE, "LOCATION": "somewhere"}, ["E006"]),
        ({**DATABASE, "LOCATION": "elsewhere"}, ["E006"]),
        ({**ADVISORY, "LOCATION": "elsewhere"}, ["E006"]),
        ({**ADVISORY, "TTL": 0.5}, ["E003"]),
        ({**ROW_LOCK, "OPTIONS": {"LOCK_DELAY": 1}}, ["E005"]),
        ({**REDIS, "LOCATION": ""}, ["E006"]),
        ({**REDIS, "LOCATION": "http://a"}, ["E006"]),
        ({**REDIS, "LOCATION": "sentinel://a:26379;sentinel://b:26379"}, ["E006"]),
        ({**REDIS, "LOCATION": ["redis://a:1", "redis://b:1"]}, ["E006"]),
        ({**REDIS, "LOCATION": "default"}, ["E006"]),  # an alias of CACHES
        ({**REDLOCK, "LOCATION": ["redis://a:1", "redis://b:1", "sentinel://c:26379"]}, ["E006"]),
        ({**REDIS, "LOCATION": "redis://:p#ss@host:6379/0"}, ["E006"]),
        ({**REDLOCK, "LOCATION": "redis://a:1"}, ["E006"]),
        ({**REDLOCK, "LOCATION": ["redis://a:1", "redis://b:1", None]}, ["E006"]),
        ({**REDLOCK, "LOCATION": ["redis://a:1", "redis://b:1"]}, ["E007"]),
        ({**REDLOCK, "LOCATION": ["redis://a:1/0", "redis://u:p@A:1", "redis://b", "redis://c"]}, ["E007"]),
        ({**REDLOCK, "LOCATION": ["redis://a:1", "redis://a:1", "redis://b:1"]}, ["E007", "E007"]),
        ({**REDLOCK, "OPTIONS": {"ROUNDS": 0}}, ["E005"]),
        ({**REDLOCK, "TTL": 6, "OPTIONS": {"QUARANTINE": 5}}, ["E008"]),
        ({**REDLOCK, "TTL": 0, "OPTIONS": {"QUARANTINE": 5}}, ["E003"]),
        ({**REDIS, "TTL": None, "X": 1}, ["E002", "E003"]),
        (NONE, []),
        (DATABASE, []),
        (ADVISORY, []),
        (ROW_LOCK, []),
        (REDIS, []),
        (REDLOCK, []),
        ({**REDIS, "LOCATION": "unix:///tmp/redis.sock"}, []),
    ],
)  # fmt: skip
def test_problem_and_id(entry: Any, found: list[str]) -> None:
    assert ids(entry) == found


KINDS = {
    "none.NoLockBackend", "database.DatabaseLeaseBackend", "claim.OptimisticClaimBackend",
    "advisory.AdvisoryLockBackend", "row_lock.RowLockBackend", "redis.RedisLockBackend", "redlock.RedlockBackend",
}  # fmt: skip


def test_seven_backends_are_offered_and_none_keeps_a_lock_in_a_cache() -> None:
    modules = [import_module(f"locks.backends.{found.name}") for found in iter_modules(backends.__path__)]
    for module in modules:
        assert "django.core.cache" not in Path(str(module.__file__)).read_text(), module.__name__
    found = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    made = {one for one in found if issubclass(one, BaseLockBackend)}
    last = {one for one in made if not any(other is not one and issubclass(other, one) for other in made)}
    assert {f"{one.__module__}.{one.__name__}" for one in last} == {f"locks.backends.{kind}" for kind in KINDS}


def test_a_database_that_is_no_postgresql() -> None:
    lite = {
        **connections["default"].settings_dict,
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
    }
    connections.settings["lite"] = lite
    try:
        assert ids({**DATABASE, "LOCATION": "lite"}) == ["E006"]
    finally:
        del connections.settings["lite"]
        del connections["lite"]


@pytest.mark.parametrize("sign", [{"DISABLE_SERVER_SIDE_CURSORS": True}, {"PORT": 6432}, {"PORT": "6432"}])
@pytest.mark.parametrize(("kind", "found"), [(ADVISORY, ["W001"]), (ROW_LOCK, ["W001"]), (DATABASE, [])])
def test_a_database_that_looks_pooled_is_told(sign: dict[str, Any], kind: dict[str, Any], found: list[str]) -> None:
    """A warning, not an error: what is asked of the server itself decides."""
    connections.settings["pooled"] = {**connections["default"].settings_dict, **sign}
    try:
        assert ids({**kind, "LOCATION": "pooled"}) == found
        with override_settings(LOCKS={"x": {**kind, "LOCATION": "pooled"}}):
            assert all("PostgreSQL's own" in str(message.hint) for message in check_lock_settings())
            assert lock_backends["x"].alias == "x"
    finally:
        del connections.settings["pooled"]


def test_each_problem_names_alias_and_remedy() -> None:
    with override_settings(LOCKS={"mine": {**REDIS, "TTL": -1}}):
        (message,) = check_lock_settings()
    assert "LOCKS['mine']['TTL']" in message.msg
    assert "-1" in message.msg
    assert message.hint
    assert message.obj == "mine"


def test_a_password_is_never_repeated() -> None:
    for location in ("redis://:hunter2@host:99999/0", "http://:hunter2@host", ["redis://:hunter2@a:1"] * 3):
        for kind in (REDIS, REDLOCK):
            with override_settings(LOCKS={"x": {**kind, "LOCATION": location}}):
                assert check_lock_settings()
                assert "hunter2" not in str(check_lock_settings())


def test_settings_that_are_no_mapping() -> None:
    with override_settings(LOCKS=["x"]):
        assert [message.id for message in check_lock_settings()] == ["aegis.locks.E001"]
        with pytest.raises(InvalidLockBackend, match="no mapping"):
            lock_backends["x"]


def test_checks_are_registered_and_the_projects_settings_are_clean() -> None:
    assert [message for message in run_checks() if (message.id or "").startswith("aegis.locks")] == []
    with override_settings(LOCKS={"x": {}}):
        assert "aegis.locks.E001" in [message.id for message in run_checks()]


def test_a_backend_checks_its_own_settings() -> None:
    assert all(lock_backends[alias].check() == [] for alias in lock_backends.aliases())


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", "aegis_locks", check=True, dry_run=True, verbosity=0)
