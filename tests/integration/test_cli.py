"""``manage.py aegis``: verbs, formats, exit codes."""

from __future__ import annotations

import json
import socket
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from aegis_site.demo.fleet import FleetError, free_port
from scheduler.minting import mint
from scheduler.models import LockName, Schedule, Tick
from tests.support.engine import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("aegis", *arguments, stdout=out)
    return out.getvalue()


def test_next_names_the_runs_that_the_ticker_will_store() -> None:
    schedule = make_schedule("report", cron_expression="30 2 * * *", time_zone="Europe/Berlin")
    rows = json.loads(said("schedules", "next", "report", "-n", "3", "--format", "json"))["next"]
    assert len(rows) == 3
    mint()
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None
    assert rows[0]["utc"] == schedule.next_fire_at.isoformat()


def test_an_unknown_schedule_is_refused_with_those_that_exist() -> None:
    make_schedule("report")
    with pytest.raises(CommandError, match=r"'reprot'.*report") as refusal:
        said("schedules", "next", "reprot")
    assert refusal.value.returncode == 1


def test_seed_can_be_repeated() -> None:
    for _ in range(2):
        said("seed")
    assert Schedule.objects.count() == LockName.objects.count() >= 7
    assert not Tick.objects.exists()


def test_list_has_no_escape_codes_when_it_is_piped() -> None:
    make_schedule("report", every_seconds=60)
    assert "\x1b" not in said("schedules", "list")
    assert "report\tActive" in said("schedules", "list")


def test_a_port_in_use_is_told_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(FleetError, match=r"Port \d+ cannot be used.*--port 0"):
            free_port(taken.getsockname()[1])


@pytest.mark.parametrize(
    "arguments",
    [("schedules", "next", "report", "-n", "-3"), ("schedules", "next"), ("demo", "--port", "65536"),
     ("demo", "--workers", "x")],
)  # fmt: skip
def test_a_number_that_makes_no_sense_or_a_missing_name_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"whole number from|Name the schedule"):
        said(*arguments)
