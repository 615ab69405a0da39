"""However the starter of embedded services ends, nothing runs on, and the next start clears what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aegis_site.embedded import Services
from aegis_site.embedded.marks import ProcessMark
from aegis_site.embedded.state import read
from aegis_site.stores import REQUIRED
from tests.support import wait_until

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux ends orphans for us"),
]

PROJECT = Path(__file__).resolve().parent.parent.parent
STARTER = """
import pathlib, signal, sys
from aegis_site.embedded import ensure_services, spawn
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs these tests behind itself
with ensure_services(pathlib.Path("/nowhere")) as services:
    log = services.folder / "logs" / "child.log"
    child = spawn("child", [sys.executable, "-c", "import time; time.sleep(600)"], log=log)
    print(child.pid, flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs services in `tmp_path` and one more child, whose number it has printed."""
    environment = {name: value for name, value in os.environ.items() if name not in REQUIRED}
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=PROJECT,
        env={**environment, "AEGIS_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def descendants(process: subprocess.Popen[str]) -> list[ProcessMark]:
    """Wait until the starter says that all is up; then mark it and all that it runs."""
    assert process.stdout is not None
    assert process.stdout.readline(), process.communicate()[1]
    children = psutil.Process(process.pid).children(recursive=True)
    return [ProcessMark(pid=child.pid, started=child.create_time()) for child in children]


def all_gone(marks: list[ProcessMark]) -> None:
    wait_until(
        lambda: not any(mark.alive for mark in marks),
        timeout=60,
        message=lambda: f"these had ended: {[mark for mark in marks if mark.alive]}",
    )


def test_after_kill_9_everything_ends_and_the_next_start_clears_up(
    starter: subprocess.Popen[str], tmp_path: Path
) -> None:
    marks = descendants(starter)
    assert len(marks) > 9
    state = read(tmp_path)
    assert state is not None
    starter.kill()
    all_gone(marks)
    assert Path(state.temporary).exists()  # nobody was left to remove it
    said: list[str] = []
    with Services(tmp_path, notify=said.append) as services:
        assert all(server.running for server in services.servers)
    assert said == [f"Cleaned up {tmp_path}: process {starter.pid}, which ran services there, was killed."]
    assert not Path(state.temporary).exists()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1), (signal.SIGINT, -signal.SIGINT)],
)
def test_a_signal_ends_the_services_and_removes_their_files(
    starter: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, status: int
) -> None:
    marks = descendants(starter)
    state = read(tmp_path)
    assert state is not None
    starter.send_signal(number)
    assert starter.wait(90) == status
    all_gone(marks)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "logs"]
    assert not Path(state.temporary).exists()


def test_a_process_number_given_to_somebody_else_is_not_taken_for_the_starter(tmp_path: Path) -> None:
    mine = ProcessMark.of(os.getpid())
    state = {"starter": {"pid": mine.pid, "started": mine.started - 100}, "processes": [], "environment": {}}
    (tmp_path / "services.json").write_text(json.dumps({**state, "temporary": ""}))
    said: list[str] = []
    with Services(tmp_path, notify=said.append) as services:
        assert services.postgres.running
    assert len(said) == 1


def test_only_temporary_folders_of_ours_are_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    folder = tmp_path / "instance"
    folder.mkdir()
    state = {"starter": {"pid": 2**22, "started": 1.0}, "processes": [], "environment": {}}
    (folder / "services.json").write_text(json.dumps({**state, "temporary": str(precious)}))
    with Services(folder, notify=lambda sentence: None):
        pass
    assert precious.exists()
