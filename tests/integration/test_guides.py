"""The guides for operators, word for word: their files are written, their commands are run."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from urllib.parse import quote

import psycopg
import pytest
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from scheduler.minting import mint
from scheduler.models import Instance, Schedule, Tick
from tests.integration.test_quickstart import environment, follow, shop
from tests.support import CeleryProcesses
from tests.support.engine import database_now, make_schedule, store
from tests.support.processes import PROJECT, database_url

__all__ = ["shop"]  # a fixture, for the tests below

pytestmark = pytest.mark.django_db(transaction=True)

HOW_TO = PROJECT / "docs" / "how-to"
FILE = re.compile(r"^ *`(?P<file>[\w/]+\.py)`:\n\n *```python\n(?P<code>.*?)^ *```", re.M | re.S)
COMMAND = re.compile(r"^ *\$ (.+)$", re.M)
SCHEMA = "aegis_removed"


def files(guide: str) -> dict[str, str]:
    return {found["file"]: dedent(found["code"]) for found in FILE.finditer((HOW_TO / guide).read_text())}


def commands(guide: str) -> list[str]:
    return COMMAND.findall((HOW_TO / guide).read_text())


def write(shop: Path, guide: str) -> None:
    for name, code in files(guide).items():
        (shop / name).write_text(code)


def run(shop: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    started = [sys.executable, *(words[1:] if words[0] == "python" else ["-m", *words])]
    return subprocess.run(started, cwd=shop, env=environment(shop), capture_output=True, text=True, timeout=120)


def due_for_long(name: str) -> Schedule:
    """Three times within the half hour that is over; its next one is five minutes away, whatever the clock says."""
    schedule = make_schedule(name, every_seconds=600)
    past = database_now() - timedelta(seconds=1800)
    store(schedule, next_fire_at=past, activated_at=past, anchor=past - timedelta(seconds=300))
    return schedule


def test_a_row_of_beat_becomes_a_schedule_and_fires_no_more(shop: Path) -> None:
    follow(shop)
    every, _ = IntervalSchedule.objects.get_or_create(every=600, period="seconds")
    row = PeriodicTask.objects.create(
        name="reconcile", task="orders.tasks.reconcile_invoices", interval=every, kwargs='{"region": "north"}'
    )
    for command in commands("move-from-django-celery-beat.md"):
        done = run(shop, command)
        assert done.returncode == 0, done.stdout + done.stderr
    row.refresh_from_db()
    schedule = Schedule.objects.get(name="reconcile")
    assert (row.enabled, schedule.enabled, schedule.kwargs) == (False, True, {"region": "north"})


def test_after_a_restore_what_passed_is_not_caught_up(shop: Path) -> None:
    follow(shop)
    write(shop, "back-up-and-restore.md")
    forgotten = due_for_long("forgotten")
    purge, forget = commands("back-up-and-restore.md")
    for command in (purge, forget):
        done = run(shop, command)
        assert done.returncode == 0, done.stderr
    kept = due_for_long("caught-up")
    mint()
    assert {*Tick.objects.filter(schedule=forgotten).values_list("state", flat=True)} <= {"misfired"}
    assert Tick.objects.filter(schedule=kept, state="planned").count() == 1


def test_a_probe_tells_whether_this_host_has_stamped(shop: Path) -> None:
    follow(shop)
    beat, worker = [command for command in commands("monitor.md") if "aegis alive" in command]
    Instance.objects.create(kind="beat", name="beat", host=socket.gethostname(), pid=1)
    assert run(shop, beat).returncode == 0
    silent = run(shop, worker)
    assert silent.returncode == 1 and "no worker of" in silent.stderr
    check, status, gauges = [command for command in commands("monitor.md") if "aegis alive" not in command]
    assert run(shop, check).returncode == 0
    assert '"workers_silent": 0' in run(shop, status).stdout
    assert "# TYPE aegis_beats gauge\n" in run(shop, gauges).stdout


def test_the_tests_of_a_team_pass(shop: Path) -> None:
    follow(shop)
    write(shop, "test-your-tasks.md")
    with_pytest, with_django = commands("test-your-tasks.md")
    done = run(shop, f"{with_pytest} -p no:cacheprovider -p no:randomly")
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
    done = run(shop, f"{with_django} --noinput")
    assert done.returncode == 0 and "Ran 2 tests" in done.stderr, done.stdout + done.stderr


def test_the_tables_go_and_leave_the_others(celery_processes: CeleryProcesses) -> None:
    separator = "&" if "?" in database_url() else "?"
    other = {"DATABASE_URL": f"{database_url()}{separator}options={quote(f'-c search_path={SCHEMA}')}"}
    with psycopg.connect(database_url(), autocommit=True) as session:
        session.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        session.execute(f"CREATE SCHEMA {SCHEMA}")
        try:
            for number, command in enumerate(["python manage.py migrate -v 0", *commands("remove.md")]):
                process = celery_processes.python(f"step-{number}", *command.split()[1:], env=other)
                assert process.wait(120) == 0, process.log.read_text()
            left = session.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", [SCHEMA]
            ).fetchall()
            functions = session.execute(
                "SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace", [SCHEMA]
            ).fetchall()
        finally:
            session.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    names = {name for (name,) in left}
    assert "django_celery_beat_periodictask" in names
    assert {name for name in names if name.startswith(("aegis_locks", "aegis_scheduler"))} == set()
    assert functions == []


def test_cron_mails_nothing_while_an_alert_is_open(shop: Path, tmp_path: Path) -> None:
    """The line of the guide, with a `logger` that writes down what it is told."""
    follow(shop)
    (line,) = re.findall(r"^ *\* \* \* \* \* (.+)$", (HOW_TO / "be-alerted.md").read_text(), re.M)
    line = line.replace("/srv/project", str(shop)).replace(".venv/bin/python", sys.executable)
    fake = tmp_path / "bin" / "logger"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/arguments; cat > {tmp_path}/told\n")
    fake.chmod(0o755)
    make_schedule("due", every_seconds=60)  # and no beat is there
    env = environment(shop)
    env["PATH"] = f"{fake.parent}:{env['PATH']}"
    mailed = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=120)
    assert (mailed.stdout, mailed.stderr) == ("", "")
    assert (tmp_path / "arguments").read_text() == "-t aegis\n"
    assert "status 1" in (tmp_path / "told").read_text()
