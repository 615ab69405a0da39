"""Cron across clock changes: next_after(t) is the least member of F greater than t, wherever t lies.

F is built here by trying every minute, from the drawn sets of minutes and hours alone: neither cronsim
nor the code under test takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.recurrence import cron
from scheduler.zones import clock_changes

MINUTE = timedelta(minutes=1)
SPAN = timedelta(days=4)
DAY = 86_400 * 10**6  # in microseconds

# Zone, and a day inside which its clocks go forward or back. Kathmandu has an odd offset and no change.
DAYS = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Europe/Lisbon", "2027-03-28"),
    ("Europe/Lisbon", "2027-10-31"),
    ("Europe/Berlin", "2027-03-28"),
    ("Europe/Berlin", "2027-10-31"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Asia/Kathmandu", "2026-06-01"),
    ("Asia/Beirut", "2027-03-27"),
]


@dataclass(frozen=True)
class Part:
    text: str
    values: frozenset[int]


def parts(size: int, likely: int) -> st.SearchStrategy[Part]:
    """A minute or hour field of ``size`` values, single values being drawn from the first ``likely``."""
    value = st.integers(0, likely - 1)
    return st.one_of(
        st.just(Part("*", frozenset(range(size)))),
        st.sampled_from([2, 5, 7, 10, 30]).map(lambda n: Part(f"*/{n}", frozenset(range(0, size, n)))),
        value.map(lambda v: Part(str(v), frozenset({v}))),
        st.sets(value, min_size=2, max_size=4).map(lambda vs: Part(",".join(map(str, sorted(vs))), frozenset(vs))),
        st.tuples(value, value).map(lambda ab: Part(f"{min(ab)}-{max(ab)}", frozenset(range(min(ab), max(ab) + 1)))),
    )


# Clocks change in the small hours.
HOURS = st.one_of(parts(24, 24), parts(24, 5))


def fire_times_by_trying(minute: Part, hour: Part, zone: str, low: datetime) -> list[datetime]:
    """F in the four days from ``low``, from the definition."""
    wildcard = minute.text.startswith("*") or hour.text.startswith("*")
    minutes = shown_minutes(zone, low) if wildcard else wall_minutes(zone, low)
    found = {i for wall, i in minutes if wall.minute in minute.values and wall.hour in hour.values}
    return sorted(i for i in found if low <= i < low + SPAN)


@cache
def shown_minutes(zone: str, low: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute of real time, with the local time that it shows."""
    instants = (low + n * MINUTE for n in range(SPAN // MINUTE))
    return [(instant.astimezone(ZoneInfo(zone)), instant) for instant in instants]


@cache
def wall_minutes(zone: str, low: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute of the local calendar, with the instant at which a fixed time fires."""
    first = (low - timedelta(days=1)).replace(tzinfo=None)
    walls = [first + n * MINUTE for n in range((SPAN + timedelta(days=2)) // MINUTE)]
    return [(wall, instant_of(wall, ZoneInfo(zone))) for wall in walls]


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant that shows this local time; where none does, the end of the gap."""
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    while instant.astimezone(zone).replace(tzinfo=None, fold=0) != wall:
        wall += MINUTE
        instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return instant


@settings(max_examples=60)
@pytest.mark.parametrize(("zone", "day"), DAYS)
@given(minute=parts(60, 60), hour=HOURS, moments=st.lists(st.integers(0, 2 * DAY), min_size=1, max_size=30))
def test_next_is_the_least_later_fire_time(zone: str, day: str, minute: Part, hour: Part, moments: list[int]) -> None:
    low = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=12)
    expected = fire_times_by_trying(minute, hour, zone, low)
    recurrence = cron(f"{minute.text} {hour.text} * * *", zone)

    for micro in moments:
        t = low + timedelta(microseconds=micro)
        assert recurrence.next_after(t) == next(f for f in expected if f > t)
    walked = recurrence.fire_times(low - MINUTE / 2, low + SPAN - MINUTE, 100_000).times
    assert list(walked) == expected


def test_activation_inside_the_repeated_hour_never_answers_with_the_past() -> None:
    """New York, 1 November 2026: 01:30 came at 05:30Z; cronsim alone, asked at 06:00Z, says 05:30Z."""
    activated = datetime(2026, 11, 1, 6, tzinfo=UTC)
    local = activated.astimezone(ZoneInfo("America/New_York"))
    assert next(CronSim("30 1 * * *", local)).astimezone(UTC) < activated, "cronsim has changed: the guard may go"

    assert cron("30 1 * * *", "America/New_York").next_after(activated) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


def test_half_hour_change_does_not_move_the_rest_of_the_day() -> None:
    """Lord Howe, 4 October 2026: cronsim alone says 05:30 where the walk begins before the change."""
    zone = ZoneInfo("Australia/Lord_Howe")
    before = datetime(2026, 10, 3, 10, tzinfo=UTC)
    assert next(CronSim("*/10 5 * * *", before.astimezone(zone))).minute == 30, "cronsim has changed"

    fire_time = cron("*/10 5 * * *", "Australia/Lord_Howe").next_after(before)
    assert fire_time.astimezone(zone).strftime("%d %H:%M") == "04 05:00"


@pytest.mark.parametrize("zone_name", ["America/New_York", "Europe/Berlin", "Asia/Kathmandu", "UTC"])
@settings(max_examples=40)
@given(
    expression=st.sampled_from(
        [
            "*/5 * * * *",
            "*/10 2 * * *",
            "* 1-3 * * SUN",
            "30 2 * * *",
            "0 9 L * *",
            "0 0 13 * 5",
            "15 */6 1-7 * MON",
        ]
    ),
    day=st.integers(0, 800),
)
def test_agrees_with_cronsim_where_cronsim_begins_at_noon(zone_name: str, expression: str, day: int) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo(zone_name)) + timedelta(days=day)
    theirs = CronSim(expression, noon)
    ours = cron(expression, zone_name).fire_times(noon.astimezone(UTC), datetime(2999, 1, 1, tzinfo=UTC), 100)
    expected: list[datetime] = []
    while len(expected) < 100:
        instant = next(theirs).astimezone(UTC)
        if not expected or instant > expected[-1]:
            expected.append(instant)
    assert list(ours.times) == expected


def test_clock_changes_are_found_to_the_second() -> None:
    year = (datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
    changes = list(clock_changes(ZoneInfo("Europe/Berlin"), *year))
    assert [c.at for c in changes] == [
        datetime(2027, 3, 28, 1, tzinfo=UTC),
        datetime(2027, 10, 31, 1, tzinfo=UTC),
    ]
    assert [c.forward for c in changes] == [True, False]
    assert changes[0].span == (datetime(2027, 3, 28, 2), datetime(2027, 3, 28, 3))
    assert changes[1].span == (datetime(2027, 10, 31, 2), datetime(2027, 10, 31, 3))


@given(cut=st.integers(-3 * 10**6, 3 * 10**6))
def test_a_change_belongs_to_the_stretch_that_ends_at_or_after_it(cut: int) -> None:
    change = datetime(2027, 3, 28, 1, tzinfo=UTC)
    middle = change + timedelta(microseconds=cut)
    zone, day = ZoneInfo("Europe/Berlin"), timedelta(days=1)
    before = [c.at for c in clock_changes(zone, change - day, middle)]
    later = [c.at for c in clock_changes(zone, middle, change + day)]
    assert (before, later) == (([change], []) if change <= middle else ([], [change]))


def test_a_skipped_calendar_day_is_one_change() -> None:
    """Samoa had no 30 December 2011."""
    zone = ZoneInfo("Pacific/Apia")
    start = datetime(2011, 12, 29, tzinfo=UTC)
    (change,) = clock_changes(zone, start, start + timedelta(days=4))
    assert change.new - change.old == timedelta(days=1)
    daily = cron("0 12 * * *", "Pacific/Apia").fire_times(start, start + timedelta(days=3), 10).times
    assert [f.astimezone(zone).strftime("%d %H:%M") for f in daily] == [
        "29 12:00",
        "31 00:00",
        "31 12:00",
        "01 12:00",
    ]
