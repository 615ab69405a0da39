"""The demo as a newcomer runs it: its own servers, real processes, one JSON object on stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from aegis_site.stores import OPTIONAL, REQUIRED
from tests.support import wait_until
from tests.support.processes import PROJECT

STRATEGIES = {"database", "optimistic", "advisory", "row_lock", "redis", "redlock"}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No stores are named, so that the demo starts its own, in a folder of this test."""
    left_out = {*REQUIRED, *OPTIONAL, "AEGIS_EMBEDDED"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "AEGIS_DIR": str(tmp_path / "aegis")}


def demo(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "aegis", "demo", "--port", "0", *arguments],
        cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def check(result: dict[str, Any]) -> None:
    by_name = {row["name"]: row for row in result["schedules"]}
    baseline = by_name.pop("baseline")
    assert baseline["duplicates"] > 0 and baseline["overlaps"] > 0 and baseline["ledger_duplicates"] > 0
    assert float(baseline["ledger_settled_twice"]) > 0
    lock_only = by_name.pop("lock-only")
    assert lock_only["overlaps"] == 0
    assert {row["lock"] for row in by_name.values()} == STRATEGIES
    for row in by_name.values():
        wrong = ("duplicates", "overlaps", "missed", "ledger_duplicates", "ledger_overlaps")
        assert {key: row[key] for key in wrong} == dict.fromkeys(wrong, 0), row
        assert row["ticks"] > 0 and row["executed"] > 0
    assert result["audit_agrees_with_ledger"] is True


def test_the_baseline_collides_the_strategies_do_not_and_nothing_is_left_running(environment: dict[str, str]) -> None:
    process = demo(environment, "--seconds", "15", "--format", "json")
    out, told = process.communicate(timeout=180)
    assert process.returncode == 0, told
    result = json.loads(out)
    assert (result["workers"], result["beats"]) == (4, 2)
    check(result)
    folder = environment["AEGIS_DIR"]
    left = [p.pid for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("AEGIS_DIR") == folder]
    assert left == []


def interrupt_after(process: subprocess.Popen[str], line: str) -> tuple[str, str]:
    """Ctrl-C as soon as the demo has printed a line that begins with ``line``; what it printed from there on."""
    assert process.stderr is not None
    told: list[str] = []

    def printed() -> bool:
        told.append(process.stderr.readline())  # type: ignore[union-attr]
        return told[-1].startswith(line)

    wait_until(printed, timeout=120, message=lambda: f"the demo printed {line!r}: {told}")
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=120)


def test_ctrl_c_ends_the_demo_with_its_result(environment: dict[str, str]) -> None:
    process = demo(environment, "--workers", "1", "--beats", "1")
    out, _ = interrupt_after(process, "Logs:")
    assert "Audit and side-effect ledger agree." in out
    assert process.returncode == 0
