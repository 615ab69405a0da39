"""A short soak as anybody may run it: real processes, some faults, no promise broken, and a checker that can see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aegis_site.soak.cli.soak import INCONCLUSIVE
from aegis_site.soak.report import STARVED
from aegis_site.stores import OPTIONAL, REQUIRED
from tests.support.processes import PROJECT


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    left_out = {*REQUIRED, *OPTIONAL, "AEGIS_EMBEDDED"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "AEGIS_DIR": str(tmp_path / "aegis")}


def soak(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "manage.py", "aegis", "soak", "--format", "json", *arguments],
        cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def only_starved(status: int, verdict: dict[str, Any]) -> bool:
    """Whether the run proves less than it might because other work took the cores: it says so, and breaks nothing."""
    return status == INCONCLUSIVE and all(STARVED in reason for reason in verdict["inconclusive"])


def test_under_kills_and_duplicates_every_promise_holds(environment: dict[str, str]) -> None:
    status, verdict, told = soak(
        environment, "--ticks", "300", "--workers", "2", "--faults", "kill,duplicate,beat-kill"
    )
    assert verdict["broken_promises"] == [], told
    assert status == 0 or only_starved(status, verdict), (verdict["inconclusive"], told)
    assert verdict["ticks"] >= 300 and verdict["faults"]
    for alias, figures in verdict["strategies"].items():
        if alias != "none":
            assert figures["outcomes"].get("executed", 0) > 0, alias


def test_without_the_tick_guard_the_same_duplicates_are_run(environment: dict[str, str]) -> None:
    status, verdict, told = soak(
        environment, "--ticks", "200", "--workers", "2", "--faults", "duplicate", "--no-tick-guard"
    )
    found = {
        alias: figures["found"]["G2 second body of one tick"] for alias, figures in verdict["strategies"].items()
    }
    assert sum(counts["count"] for alias, counts in found.items() if alias != "none") > 0, told
    assert verdict["broken_promises"] == [], told
    assert status == 0 or only_starved(status, verdict), (verdict["inconclusive"], told)
