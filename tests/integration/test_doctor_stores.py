"""What real stores are found to be, healthy and sick."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import pytest
from celery import current_app
from django.db import connections

from aegis_site.embedded import Services
from locks import Finding, Level, bounded, connection, lock_backends
from locks.backends.base import BaseLockBackend
from locks.backends.redlock import RedlockBackend
from locks.examination import postgres
from locks.testing import admit_nodes
from scheduler import visibility
from tests.contract.pooler import TransactionPooler
from tests.contract.wires import WIRED, database_address, database_behind, wired_row_backend
from tests.support.cluster import ALIAS, Cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2"


def sick(findings: list[Finding]) -> list[str]:
    """Level and sentence of what is not ok, in one text each."""
    return [f"{finding.level}: {finding.sentence}" for finding in findings if finding.level is not Level.OK]


def made(alias: str, **changes: Any) -> BaseLockBackend:
    """A backend of the kind of ``alias`` with other settings."""
    backend = lock_backends[alias]
    return type(backend)(alias, {**backend.params, **changes})


# redis


KEEPS_NOTHING = "over a restart it keeps nothing"  # the embedded Redis for locks, on purpose


def of_redis(**changes: Any) -> list[str]:
    return [line for line in sick(made("redis", **changes).examine()) if KEEPS_NOTHING not in line]


def login(url: str, user: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{SECRET}@{parts.hostname}:{parts.port}"))


@contextmanager
def user(services: Services, *rules: str) -> Iterator[str]:
    """The address of the Redis for locks, for a user with these ACL rules."""
    name = f"doctor-{secrets.token_hex(4)}"
    with services.redis["locks"].client() as client:
        client.execute_command("ACL", "SETUSER", name, "on", f">{SECRET}", *rules)
        try:
            yield login(services.redis["locks"].url, name)
        finally:
            client.execute_command("ACL", "DELUSER", name)


@contextmanager
def configured(services: Services, name: str, value: str) -> Iterator[None]:
    with services.redis["locks"].client() as client:
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


def test_a_healthy_redis_and_nothing_is_left_in_it(services: Services) -> None:
    with services.redis["locks"].client() as client:
        before = client.dbsize()
        assert of_redis() == []
        assert client.dbsize() == before


def test_a_redis_that_evicts_keys(services: Services) -> None:
    with configured(services, "maxmemory-policy", "allkeys-lru"):
        (line,) = of_redis()
    assert line.startswith("fail: ")
    assert "maxmemory-policy is allkeys-lru" in line
    assert of_redis() == []


def test_persistence_is_said(services: Services) -> None:
    assert KEEPS_NOTHING in sick(made("redis").examine())[0]
    with configured(services, "save", "60 1"):
        assert "only in snapshots" in sick(made("redis").examine())[0]
    with configured(services, "appendonly", "yes"):
        assert sick(made("redis").examine()) == []


def test_a_user_who_may_do_only_what_the_scripts_do_can_run_and_is_told_what_it_hides(services: Services) -> None:
    scripts = ("+get", "+set", "+pttl", "+pexpire", "+del", "+time", "+eval", "+evalsha", "+scan", "~aegis:*")
    with user(services, *scripts) as url:
        backend = made("redis", LOCATION=url)
        lease = backend.acquire("doctor:limited")
        assert lease is not None and backend.release(backend.renew(lease))
        found = of_redis(LOCATION=url)
    assert all(line.startswith("warn: could not look") for line in found), found
    assert len(found) == 3  # role, policy, persistence: unknown is never ok


def test_a_user_who_may_ask_info_needs_no_config(services: Services) -> None:
    with user(services, "+@all", "-config", "~*") as url:
        found = sick(made("redis", LOCATION=url).examine())
    assert ["could not look: redis at" in line and "over a restart" in line for line in found] == [True]


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (("+@all", "~*", "-pexpire"), "NOPERM for PEXPIRE,"),
        (("+@all", "~*", "-eval", "-evalsha", "-time"), "NOPERM for TIME, EVALSHA, EVAL,"),
        (("+@all", "~cache:*"), "SET on aegis:*"),
        (("-@all",), "GET, SET, PTTL, PEXPIRE, DEL, TIME, EVALSHA, EVAL, SCAN"),
    ],
    ids=["one", "scripts", "keys", "all"],
)
def test_a_user_without_the_rights_that_scripts_need(services: Services, rules: tuple[str, ...], named: str) -> None:
    with user(services, *rules) as url:
        found = made("redis", LOCATION=url).examine()
    (line,) = (line for line in sick(found) if line.startswith("fail: "))
    assert named in line
    assert SECRET not in repr(found)


def test_a_wrong_password_is_no_answer_and_not_repeated(services: Services) -> None:
    found = made("redis", LOCATION=login(services.redis["locks"].url, "nobody")).examine()
    (line,) = sick(found)
    assert "no answer (AuthenticationError)" in line
    assert SECRET not in repr(found)


@pytest.mark.faults
def test_a_replica_is_no_place_for_leases(services: Services) -> None:
    primary, locks = services.redis["broker"], services.redis["locks"]
    with locks.client() as client, primary.client() as other:
        client.config_set("masterauth", urlsplit(primary.url).password)
        client.execute_command("REPLICAOF", "127.0.0.1", str(primary.port))
        try:
            wait_until(lambda: client.info()["master_link_status"] == "up", timeout=30, message="it is a replica")
            lines = of_redis()
            assert any("it is a replica" in line for line in lines), lines
            assert any("refuses writes (SET: ReadOnlyError)" in line for line in lines), lines
            wait_until(lambda: other.info()["connected_slaves"] == 1, timeout=30, message="the primary knows")
            shared = of_redis(LOCATION=primary.url)
            assert any("a failover forgets the latest leases" in line for line in shared), shared
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
    assert of_redis() == []


@pytest.mark.faults
def test_a_redis_that_hangs_is_told_within_the_bound(services: Services) -> None:
    services.redis["locks"].pause()
    started = lock_backends["redis"].clock()
    (line,) = of_redis()
    assert "no answer (TimeoutError)" in line
    assert lock_backends["redis"].clock() - started < 3
    services.redis["locks"].resume()
    assert of_redis() == []


# redlock


ONE_HOST = "5 nodes on 1 host(s)"  # as the embedded ones are


def quorum() -> RedlockBackend:
    return cast("RedlockBackend", lock_backends["redlock"])


def of_quorum(backend: BaseLockBackend | None = None) -> list[str]:
    return [line for line in sick((backend or quorum()).examine()) if " on 1 host(s)" not in line]


def test_a_healthy_quorum() -> None:
    admit_nodes(quorum())
    assert of_quorum() == []
    assert ONE_HOST in "".join(sick(quorum().examine()))


def test_a_quorum_that_was_never_asked_and_one_in_quarantine(services: Services) -> None:
    for node in services.quorum:
        with node.client() as client:
            client.delete(quorum().marker)
    (line,) = of_quorum()
    assert "0 of 5 nodes may vote" in line
    assert quorum().prepare() > 0
    assert "0 of 5 nodes may vote" in of_quorum()[0]
    admit_nodes(quorum())
    assert of_quorum() == []


def test_two_addresses_of_one_server() -> None:
    """The settings cannot know that; the run ids tell."""
    urls = quorum().params["LOCATION"]
    twice = made("redlock", LOCATION=[urls[0], urls[0].replace("127.0.0.1", "localhost"), urls[1]])
    admit_nodes(quorum())
    lines = of_quorum(twice)
    assert any(line.startswith("fail: ") and "lead to one server" in line for line in lines), lines


def test_an_even_number_of_nodes() -> None:
    admit_nodes(quorum())
    (line,) = of_quorum(made("redlock", LOCATION=quorum().params["LOCATION"][:4]))
    assert "4 nodes, 3 must agree, 1 may be down, as with 3" in line


@pytest.mark.faults
def test_nodes_that_are_down(services: Services) -> None:
    admit_nodes(quorum())
    services.quorum[0].kill()
    (line,) = of_quorum()
    assert line.startswith("warn: redlock: 4 of 5 nodes answer")
    services.quorum[1].pause()
    services.quorum[2].kill()
    lines = of_quorum()
    assert any(line.startswith("fail: redlock: 2 of 5 nodes answer") for line in lines), lines


@pytest.mark.faults
def test_a_node_that_restarted_does_not_vote_yet(services: Services) -> None:
    admit_nodes(quorum())
    services.quorum[0].kill()
    services.quorum[0].start()
    (line,) = of_quorum()
    assert line.startswith("warn: redlock: 4 of 5 nodes may vote")


def test_one_node_that_evicts_keys(services: Services) -> None:
    admit_nodes(quorum())
    with services.quorum[3].client() as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        try:
            (line,) = of_quorum()
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert f"node 127.0.0.1:{services.quorum[3].port}: maxmemory-policy is volatile-ttl" in line


# postgres


@pytest.fixture
def database() -> Iterator[Any]:
    """Add a database alias ``doctor``: the test database with other OPTIONS."""

    def add(**options: Any) -> str:
        entry = connections["default"].settings_dict
        connections.settings["doctor"] = {**entry, "OPTIONS": {**entry["OPTIONS"], **options}}
        return "doctor"

    yield add
    connection.close_all()
    connections.settings.pop("doctor", None)
    if hasattr(connections._connections, "doctor"):
        connections["doctor"].close()
        del connections["doctor"]


@pytest.mark.parametrize("alias", ["database", "optimistic", "advisory", "row_lock"])
def test_a_healthy_database(alias: str) -> None:
    assert sick(lock_backends[alias].examine()) == []


def test_a_session_that_may_only_read(database: Any) -> None:
    using = database(options="-c default_transaction_read_only=on")
    lines = sick(made("database", LOCATION=using).examine())
    assert "sessions are read-only" in lines[0]
    assert lines[0].startswith("fail: ")


def test_grants_that_a_crash_may_forget(monkeypatch: pytest.MonkeyPatch, database: Any) -> None:
    """What a pooler that drops the start-up options leaves of them."""
    for value, level in (("off", "fail"), ("local", "warn")):
        monkeypatch.setitem(bounded.SESSION, "synchronous_commit", value)
        using = database()
        (line,) = sick(made("database", LOCATION=using).examine())
        assert line.startswith(f"{level}: ") and f"is {value}" in line
        connection.close_all()


def test_a_role_without_rights(database: Any) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS aegis_doctor")
        cursor.execute("CREATE ROLE aegis_doctor")
        cursor.execute("GRANT USAGE ON SCHEMA public TO aegis_doctor")
    try:
        using = database(options="-c role=aegis_doctor")
        (line,) = sick(made("database", LOCATION=using).examine())
        assert "may not use aegis_locks_advisory" in line and "aegis_locks_token" in line
        with connections["default"].cursor() as cursor:
            cursor.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO aegis_doctor")
            cursor.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO aegis_doctor")
        (line,) = sick(made("database", LOCATION=using).examine())
        assert "could not look" in line and "aegis_locks_token" in line
        with connections["default"].cursor() as cursor:
            cursor.execute("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO aegis_doctor")
        assert sick(made("database", LOCATION=using).examine()) == []
    finally:
        connection.close_all()
        with connections["default"].cursor() as cursor:
            cursor.execute("DROP OWNED BY aegis_doctor")
            cursor.execute("DROP ROLE aegis_doctor")


def test_numbers_of_another_server() -> None:
    """As after a dump was restored, whose sequence was left out."""
    with connections["default"].cursor() as cursor:
        cursor.execute("INSERT INTO aegis_locks_lease (name, token) VALUES ('doctor:restored', %s)", [(3 << 40) + 5])
        (line,) = sick(lock_backends["database"].examine())
        assert f"up to {(3 << 40) + 5} is stored" in line and "restored from timeline 4?" in line
        cursor.execute("DELETE FROM aegis_locks_lease WHERE name = 'doctor:restored'")
    assert sick(lock_backends["database"].examine()) == []


@pytest.mark.parametrize(
    ("alias", "setting"),
    [("advisory", "idle_session_timeout"), ("row_lock", "idle_in_transaction_session_timeout")],
)
def test_sessions_that_the_server_ends_between_two_renewals(database: Any, alias: str, setting: str) -> None:
    using = database(options=f"-c {setting}=1500")
    (line,) = sick(made(alias, LOCATION=using).examine())
    assert f"{setting} is 1.5 s and a lease is renewed every 2 s" in line


@pytest.mark.parametrize("alias", ["advisory", "row_lock"])
@pytest.mark.parametrize("honest", [True, False], ids=["servers-number", "own-number"])
def test_a_pooler_before_leases_that_are_sessions(alias: str, honest: bool) -> None:
    with TransactionPooler(database_address(), honest=honest) as pooler, database_behind(pooler.port):
        lines = sick(wired_row_backend(alias).examine())
        assert any(line.startswith("fail: ") and "pooled on the way" in line for line in lines), lines
        assert not any("pooled" in line for line in sick(wired_row_backend("database").examine()))


def test_a_database_that_does_not_answer() -> None:
    with database_behind(1):
        (line,) = sick(postgres.examine(WIRED))
    assert line.startswith("fail: ") and "no answer (OperationalError)" in line


@pytest.mark.slow
@pytest.mark.embedded
def test_a_standby_takes_no_writes(own_cluster: Cluster) -> None:
    assert sick(postgres.examine(ALIAS)) == []
    own_cluster.add_standby()
    standby, primary = own_cluster.standby, own_cluster.primary
    assert standby is not None
    standby.start()
    own_cluster.primary = standby
    own_cluster.connect()
    (line,) = sick(postgres.examine(ALIAS))
    assert line.startswith("fail: ") and "is a standby" in line
    own_cluster.primary = primary


# the broker


@pytest.mark.parametrize("options", [{}, {"visibility_timeout": 7200}, {"VISIBILITY_TIMEOUT": 7200}])
def test_the_time_out_is_read_as_the_transport_reads_it(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = current_app.conf.broker_transport_options
    current_app.conf.broker_transport_options = {**before, **options}
    try:
        with current_app.connection_for_read() as broker:
            assert broker.default_channel.visibility_timeout == visibility.effective().value
    finally:
        current_app.conf.broker_transport_options = before
