"""The result of the demo says what guarded the ticks that it counts."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from aegis_site.demo.results import as_json, results
from aegis_site.demo.table import table
from scheduler.models import LockName, Schedule
from tests.support.engine import make_schedule
from tests.support.pages import ticked

pytestmark = pytest.mark.django_db


def test_a_change_during_the_demo_is_told_beside_the_collisions_from_before_it() -> None:
    schedule = make_schedule("baseline", alias="none", once_per_tick=False)
    ticked(schedule, -30)
    ticked(make_schedule("steady", alias="redis"), -30)
    Schedule.objects.filter(pk=schedule.pk).update(once_per_tick=True)
    LockName.objects.filter(pk=schedule.lock_id).update(alias_in_force="database")
    schedule = Schedule.objects.select_related("lock").get(pk=schedule.pk)
    ticked(schedule, -10)
    found = results()
    told = {row["name"]: row["before"] for row in as_json(found, seconds=1, workers=1, beats=1)["schedules"]}
    assert told == {"baseline": [{"lock": "none", "once_per_tick": False}], "steady": []}
    printed = StringIO()
    Console(file=printed, width=200).print(table(found, "Result", 200))
    line = next(line for line in printed.getvalue().splitlines() if "baseline" in line)
    assert "none → database" in line and "off → on" in line
