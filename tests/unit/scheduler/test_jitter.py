"""Jitter: the same for one fire time everywhere, inside its bound, and spread."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from scheduler.jitter import delay

AT = datetime(2027, 3, 28, 1, tzinfo=UTC)


@given(
    schedule=st.integers(1, 2**62),
    at=st.datetimes(timezones=st.just(UTC)),
    most=st.floats(0.001, 86_400, allow_nan=False),
)
def test_it_is_inside_its_bound_and_always_the_same(schedule: int, at: datetime, most: float) -> None:
    jitter = delay(schedule, at, most)
    assert timedelta(0) <= jitter < timedelta(seconds=most)
    assert jitter == delay(schedule, at.astimezone(ZoneInfo("Asia/Kathmandu")), most)


def test_a_known_value_so_that_two_versions_never_differ() -> None:
    assert delay(7, AT, 60) == timedelta(seconds=1, milliseconds=254)


def test_schedules_of_one_minute_are_spread_over_it() -> None:
    delays = [delay(number, AT, 60).total_seconds() for number in range(1000)]
    tenths = [sum(1 for d in delays if n * 6 <= d < (n + 1) * 6) for n in range(10)]
    assert min(tenths) > 60, tenths


def test_without_jitter_nothing_waits() -> None:
    assert delay(1, AT, 0) == timedelta(0)
