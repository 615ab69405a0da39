"""The days on which clocks change, as a ticker lives through them: passes of a few minutes, one after the other.

The expected instants are written down by hand, zone by zone. New York changes at 2:00 by an hour, Lisbon at 1:00
UTC by an hour, Lord Howe by half an hour, Kathmandu never and stands 5:45 ahead of UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from scheduler.misfire import decide
from scheduler.recurrence import Recurrence, cron, every, once

NEW_YORK, LISBON, LORD_HOWE, KATHMANDU = (
    "America/New_York", "Europe/Lisbon", "Australia/Lord_Howe", "Asia/Kathmandu",
)  # fmt: skip
PASS = timedelta(minutes=7, seconds=11)


def z(text: str) -> datetime:
    """``2026-03-08 07:00`` in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def lived_through(recurrence: Recurrence, activated: datetime, until: datetime) -> list[datetime]:
    """What fires between activation and ``until``, pass after pass, each going on from the name that was stored."""
    fired: list[datetime] = []
    stored, now = None, activated
    while now < until:
        now = min(now + PASS, until)
        if stored is not None and stored > now:
            continue
        after = activated if stored is None else stored - timedelta(microseconds=1)
        decision = decide(
            recurrence, after=after, now=now, policy="fire_once", grace=600, catch_up_window=3600, named=stored
        )
        assert not decision.skipped
        fired += [planned.fire_time for planned in decision.ticks]
        stored = decision.next_fire_at
        if stored is None:
            break
    return fired


def local_day(zone: str, day: str) -> tuple[datetime, datetime]:
    """From just before local midnight to just before the next."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    next_midnight = (datetime.fromisoformat(day) + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone))
    moment = timedelta(microseconds=1)
    return midnight.astimezone(UTC) - moment, next_midnight.astimezone(UTC) - moment


@pytest.mark.parametrize(
    ("zone", "day", "expression", "at"),
    [
        (NEW_YORK, "2026-03-08", "30 2 * * *", "2026-03-08 07:00"),  # 2:30 does not exist: 3:00
        (NEW_YORK, "2026-03-08", "0 12 * * *", "2026-03-08 16:00"),
        (NEW_YORK, "2026-11-01", "30 1 * * *", "2026-11-01 05:30"),  # comes twice: the first time
        (NEW_YORK, "2026-11-01", "0 12 * * *", "2026-11-01 17:00"),
        (LISBON, "2027-03-28", "30 1 * * *", "2027-03-28 01:00"),
        (LISBON, "2027-10-31", "30 1 * * *", "2027-10-31 00:30"),
        (LISBON, "2027-10-31", "0 2 * * *", "2027-10-31 02:00"),
        (LORD_HOWE, "2026-10-04", "15 2 * * *", "2026-10-03 15:30"),  # 2:15 does not exist: 2:30
        (LORD_HOWE, "2026-10-04", "45 2 * * *", "2026-10-03 15:45"),
        (LORD_HOWE, "2026-04-05", "45 1 * * *", "2026-04-04 14:45"),
        (KATHMANDU, "2026-06-01", "0 0 * * *", "2026-05-31 18:15"),
        (KATHMANDU, "2026-06-01", "30 2 * * *", "2026-05-31 20:45"),
    ],
)
def test_a_daily_schedule_fires_once_on_the_day_of_the_change(zone: str, day: str, expression: str, at: str) -> None:
    assert lived_through(cron(expression, zone), *local_day(zone, day)) == [z(at)]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        (NEW_YORK, "2026-03-08", 23), (NEW_YORK, "2026-11-01", 25),
        (LISBON, "2027-03-28", 23), (LISBON, "2027-10-31", 25),
        (LORD_HOWE, "2026-10-04", 23.5), (LORD_HOWE, "2026-04-05", 24.5),
        (KATHMANDU, "2026-06-01", 24),
    ],
)  # fmt: skip
@pytest.mark.parametrize("expression", ["*/30 * * * *", "*/10 * * * *"])
def test_every_few_minutes_follows_real_time_through_the_change(
    zone: str, day: str, hours: float, expression: str
) -> None:
    step = int(expression[2:4])
    fired = lived_through(cron(expression, zone), *local_day(zone, day))
    assert len(fired) == hours * 60 / step
    assert {b - a for a, b in pairwise(fired)} == {timedelta(minutes=step)}


@pytest.mark.parametrize(
    ("zone", "day", "expression", "count"),
    [
        (NEW_YORK, "2026-11-01", "* 1 * * *", 120),  # the hour comes twice
        (NEW_YORK, "2026-03-08", "* 2 * * *", 0),  # the hour does not exist
        (LISBON, "2027-10-31", "* 1 * * *", 120),
        (LISBON, "2027-03-28", "* 1 * * *", 0),
        (LORD_HOWE, "2026-04-05", "* 1 * * *", 90),  # half of it comes twice
        (LORD_HOWE, "2026-10-04", "* 2 * * *", 30),
        (NEW_YORK, "2026-11-01", "15 * * * *", 25),
        (LORD_HOWE, "2026-04-05", "45 * * * *", 25),
        (LORD_HOWE, "2026-10-04", "15 * * * *", 23),  # 2:15 does not exist, and the hour is a wildcard
        (KATHMANDU, "2026-06-01", "* 1 * * *", 60),
    ],
)
def test_wildcards_match_what_the_clock_shows(zone: str, day: str, expression: str, count: int) -> None:
    assert len(lived_through(cron(expression, zone), *local_day(zone, day))) == count


@pytest.mark.parametrize(
    ("zone", "expression", "activated", "first"),
    [
        # Activated while the local time comes for the second time: the first has fired, or had no schedule then.
        (NEW_YORK, "30 1 * * *", "2026-11-01 06:00", "2026-11-02 06:30"),
        (LISBON, "30 1 * * *", "2027-10-31 01:10", "2027-11-01 01:30"),
        (LORD_HOWE, "45 1 * * *", "2026-04-04 15:05", "2026-04-05 15:15"),
        # A frequency goes on at its next step.
        (NEW_YORK, "*/30 * * * *", "2026-11-01 06:00", "2026-11-01 06:30"),
        (LORD_HOWE, "*/30 * * * *", "2026-04-04 15:05", "2026-04-04 15:30"),
    ],
)
def test_activation_inside_the_repeated_hour_fills_nothing_in(
    zone: str, expression: str, activated: str, first: str
) -> None:
    fired = lived_through(cron(expression, zone), z(activated), z(activated) + timedelta(days=2))
    assert fired[0] == z(first)


@pytest.mark.parametrize("zone", [NEW_YORK, LISBON, LORD_HOWE, KATHMANDU])
@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01", "2027-03-28", "2027-10-31", "2026-10-04", "2026-04-05"])
def test_intervals_and_instants_know_no_clock_change(zone: str, day: str) -> None:
    start = z(day) - timedelta(hours=12)
    fired = lived_through(every(1800, z("1970-01-01 00:00"), zone=zone), start, start + timedelta(days=2))
    assert fired == [start + timedelta(minutes=30) * n for n in range(1, 97)]
    at = z(day) + timedelta(hours=1, minutes=30)
    assert lived_through(once(at, zone=zone), start, start + timedelta(days=2)) == [at]
