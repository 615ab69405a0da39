"""The tests are alive: known mistakes, put into a copy of the code, each turn them red.

The copy runs against the session's own services, in a database of its own. `make test-mutations` tries all of them,
`make test` those that promises hang on: some of the others take a minute, until a test has waited in vain, and a few
are caught only where two threads really meet. That every mistake can still be made is checked for all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connections
from psycopg import sql

from tests.mutations.mutation import Mutation
from tests.mutations.of_celery import OF_CELERY
from tests.mutations.of_locks import OF_LOCKS
from tests.mutations.of_loss import OF_LOSS
from tests.mutations.of_sessions import OF_SESSIONS
from tests.mutations.of_the_doctor import OF_THE_DOCTOR
from tests.mutations.of_the_engine import OF_THE_ENGINE
from tests.mutations.of_the_policies import OF_THE_POLICIES

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ["aegis_site", "locks", "scheduler", "templates", "tests", "pyproject.toml", "manage.py"]
DATABASE = "mutations"
MIGRATED = "mutations_migrated"  # made anew for each mistake in a migration

pytestmark = pytest.mark.slow

MUTATIONS = [*OF_CELERY, *OF_LOCKS, *OF_LOSS, *OF_SESSIONS, *OF_THE_DOCTOR, *OF_THE_ENGINE, *OF_THE_POLICIES]

# AEGIS_MUTATIONS, all or sample: one in so many is tried, besides those that are never left out.
ONE_IN = {"all": 1, "sample": 16}.get(os.environ.get("AEGIS_MUTATIONS", ""))
TRIED = [m for n, m in enumerate(MUTATIONS) if m.never_left_out or (ONE_IN and n % ONE_IN == 0)]


@pytest.fixture(scope="module")
def environment(django_db_setup: None) -> Iterator[dict[str, str]]:
    """The environment of the runs: the session's services, with a database of their own."""
    url = urlsplit(os.environ["DATABASE_URL"])
    own = urlunsplit(url._replace(path=f"/{DATABASE}"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    yield {**inherited, "DATABASE_URL": own, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    params = connections["default"].get_connection_params()
    params.pop("cursor_factory")
    with psycopg.connect(**{**params, "dbname": "postgres"}, autocommit=True) as other:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        for name in (DATABASE, MIGRATED):
            other.execute(drop.format(sql.Identifier(f"test_{name}")))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project."""
    folder = tmp_path_factory.mktemp("original")
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def test_without_a_mistake_all_tests_that_are_to_catch_one_pass(original: Path, environment: dict[str, str]) -> None:
    tests = sorted({test for mutation in TRIED for test in mutation.caught_by})
    run = run_tests(original, environment, tests, "--create-db")
    assert run.returncode == 0, run.stdout


def made(mutation: Mutation, text: str) -> str:
    """``text`` with the mistake in it."""
    after = re.sub(mutation.old, mutation.new, text, flags=re.DOTALL)
    assert after != text, f"{mutation.file} no longer contains {mutation.old!r}: adapt the mutation"
    return after


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.mistake)
def test_the_mistake_can_still_be_made(mutation: Mutation) -> None:
    made(mutation, (PROJECT / mutation.file).read_text())


@pytest.mark.parametrize("mutation", TRIED, ids=lambda mutation: mutation.mistake)
def test_mistake_is_caught(mutation: Mutation, original: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "mutated"
    shutil.copytree(original, folder)
    file = folder / mutation.file
    file.write_text(made(mutation, file.read_text()))
    if "/migrations/" in mutation.file:
        changed = {**environment, "DATABASE_URL": environment["DATABASE_URL"].replace(f"/{DATABASE}", f"/{MIGRATED}")}
        run = run_tests(folder, changed, mutation.caught_by, "--create-db")
    else:
        run = run_tests(folder, environment, mutation.caught_by)
    failed = {line.split()[1] for line in run.stdout.splitlines() if line.startswith("FAILED ")}
    assert run.returncode == 1, run.stdout  # 1: tests failed; others: they could not be run
    assert failed == set(mutation.caught_by), run.stdout


def run_tests(
    folder: Path, environment: dict[str, str], tests: list[str] | tuple[str, ...], *more: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-rf", "--reuse-db", *more, *tests]
    return subprocess.run(
        [*command, "-p", "no:randomly", "-p", "no:cacheprovider"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
