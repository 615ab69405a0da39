"""The store behind an alias is another one since a deploy: its numbers are no measure for those of the old one."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from locks import StaleToken, connection, exclusive, fence, lock_backends
from locks.backends.numbering import numbering_of
from locks.models import FenceRecord
from scheduler.models import Execution
from scheduler.runner import run
from scheduler.states import ExecutionState
from tests.contract.wires import WIRED, wired_database
from tests.integration.test_runner import nothing
from tests.support.cluster import ALIAS
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.roles import plain_role

pytestmark = pytest.mark.django_db(transaction=True)

FAR = 2**60  # a grant that no store here reaches


def replace_store(settings: Any, **entry: Any) -> None:
    """Under the alias ``store``, from now on."""
    settings.LOCKS = {**settings.LOCKS, "store": {"TTL": 6, **entry}}


@pytest.fixture
def changes(settings: Any) -> Any:
    return lambda like, **changed: replace_store(settings, **{**settings.LOCKS[like], **changed})


def raised_far() -> None:
    """As if the latest grant of each name had that number, by the same store."""
    FenceRecord.objects.exclude(alias=None).update(grant_no=FAR)


def run_one(schedule: Any, seconds_ago: float = 0.0) -> ExecutionState:
    return run(delivery_of(make_tick(schedule, seconds_ago=seconds_ago)), nothing).state


def test_the_first_start_after_redis_became_a_database_is_let_through(changes: Any) -> None:
    changes("redis")
    schedule = make_schedule(alias="store")
    assert run_one(schedule, 9) is ExecutionState.EXECUTED
    changes("database")
    assert run_one(schedule) is ExecutionState.EXECUTED
    changes("redis")
    assert run_one(schedule, 5) is ExecutionState.EXECUTED


def test_so_is_the_first_fence_of_plain_code(changes: Any) -> None:
    name = f"t.{uuid4().hex}"
    for like in ("redis", "database", "redis"):
        changes(like)
        with exclusive(name, using="store") as held, fence(held):
            pass


@pytest.mark.parametrize(
    ("like", "changed"),
    [
        ("redis", {"KEY_PREFIX": "other"}),
        ("database", {"KEY_PREFIX": "other"}),
        ("optimistic", {"KEY_PREFIX": "other"}),
    ],
)
def test_another_place_for_the_numbers_begins_anew(like: str, changed: dict[str, Any], changes: Any) -> None:
    changes(like)
    schedule = make_schedule(alias="store")
    assert run_one(schedule, 9) is ExecutionState.EXECUTED
    raised_far()
    assert run_one(schedule, 5) is ExecutionState.PREVENTED
    changes(like, **changed)
    assert run_one(schedule) is ExecutionState.EXECUTED


@pytest.mark.parametrize("changed", [{"TTL": 7}, {"OPTIONS": {"LOCK_DELAY": 0.1}}])
def test_what_does_not_touch_the_numbers_goes_on_with_them(changed: dict[str, Any], changes: Any) -> None:
    changes("database")
    schedule = make_schedule(alias="store")
    run_one(schedule, 9)
    raised_far()
    changes("database", **changed)
    assert run_one(schedule) is ExecutionState.PREVENTED
    with pytest.raises(StaleToken), exclusive(schedule.lock_id, using="store") as held, fence(held):
        pass


@pytest.mark.parametrize("alias", ["redis", "database", "optimistic", "advisory"])
def test_a_fence_that_was_raised_before_this_version_lets_the_next_start_through(alias: str) -> None:
    schedule = make_schedule(alias=alias)
    run_one(schedule, 9)
    FenceRecord.objects.update(alias=alias, grant_no=FAR)
    assert run_one(schedule, 5) is ExecutionState.EXECUTED
    assert run_one(schedule) is ExecutionState.EXECUTED


def test_the_server_counts_and_its_secrets_do_not() -> None:
    redis = lock_backends["redis"]
    location = "redis://{}cache:6379/{}"
    said = [
        numbering_of(type(redis)("store", {**redis.params, "LOCATION": location.format(who, number)}))
        for who, number in (("", 0), ("user:secret@", 0), ("user:other@", 0), ("", 1))
    ]
    assert said[0] == said[1] == said[2] != said[3]
    assert numbering_of(type(redis)("store", {**redis.params, "LOCATION": "redis://elsewhere/0"})) not in said


def test_another_database_counts() -> None:
    database = lock_backends["database"]
    with wired_database():
        wired = type(database)("store", {**database.params, "LOCATION": WIRED})
        assert numbering_of(wired) != numbering_of(type(database)("store", database.params))


@pytest.mark.embedded
@pytest.mark.slow
@pytest.mark.usefixtures("own_cluster")
def test_another_cluster_at_the_same_address_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after pg_upgrade, or a dump was restored: no number of it goes on from what this one gave out."""
    advisory = lock_backends["advisory"]
    monkeypatch.setattr(type(advisory), "place", lambda self: ["db", "5432", "shop"])
    here, there = (type(advisory)("store", {**advisory.params, "LOCATION": at}) for at in ("default", ALIAS))
    leases = [backend.acquire(f"t.{uuid4().hex}") for backend in (here, here, there)]
    one, same, other = [lease.numbering for lease in leases if lease is not None]
    assert one == same != other
    for backend, lease in zip((here, here, there), leases, strict=True):
        assert lease is not None and backend.release(lease)
    there.close()


def test_two_aliases_that_share_a_resting_session_do_not_share_a_count() -> None:
    advisory = lock_backends["advisory"]
    connection.close_all()
    said = set()
    for alias in ("one", "other"):
        backend = type(advisory)(alias, advisory.params)
        lease = backend.acquire(f"t.{uuid4().hex}")
        assert lease is not None and backend.release(lease)
        said.add(lease.numbering)
    assert {numbering.partition("/")[0] for numbering in said} == {"one", "other"}


def test_a_role_that_may_not_know_the_cluster_locks_all_the_same() -> None:
    """What is not known is not compared: the numbers of two sessions are of two counts."""
    advisory = lock_backends["advisory"]
    with plain_role(), connections["default"].cursor() as cursor:
        cursor.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        try:
            leases = [advisory.acquire(f"t.{uuid4().hex}") for _ in range(2)]
        finally:
            cursor.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        assert len({lease.numbering for lease in leases if lease is not None}) == 2
        assert all(lease is not None and lease.grant_no and advisory.release(lease) for lease in leases)


def test_a_service_that_names_the_database_counts() -> None:
    """``OPTIONS["service"]`` stands for HOST, PORT and NAME, which are empty then."""
    database = lock_backends["database"]
    with wired_database():
        entry = connections.settings[WIRED]
        said = set()
        for service in ("one", "other"):
            entry |= {"HOST": "", "PORT": "", "NAME": "", "OPTIONS": {"service": service}}
            connections.settings[WIRED] = {**entry}
            if hasattr(connections._connections, WIRED):
                del connections[WIRED]
            said.add(numbering_of(type(database)("store", {**database.params, "LOCATION": WIRED})))
    assert len(said) == 2


def test_the_longest_alias_fits(settings: Any) -> None:
    alias = "s" * 100
    settings.LOCKS = {**settings.LOCKS, alias: {**settings.LOCKS["database"]}}
    assert run_one(make_schedule(alias=alias)) is ExecutionState.EXECUTED
    assert Execution.objects.get().lock_alias == alias
