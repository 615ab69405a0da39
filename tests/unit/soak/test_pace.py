"""The period of a soak follows the machine, and a time without CPU time to spare is known as one."""

from __future__ import annotations

import pytest

from aegis_site.soak.pace import Load, LoadWatch, bearable_period
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("start", "cores", "seconds"),
    [(1.5, 2, 1), (3.5, 2, 2), (3.5, 4, 1), (7.0, 2, 4), (0.1, 64, 1)],
)
def test_a_slower_machine_gets_a_longer_period(start: float, cores: int, seconds: int) -> None:
    assert bearable_period(36, start, cores) == seconds


@pytest.mark.parametrize(
    ("busy", "starved"),
    [([100.0] * 5, True), ([100.0] * 9 + [50.0], True), ([100.0, 40.0] * 5, False), ([96.0] * 5, False), ([], False)],
)
def test_a_time_is_starved_where_most_of_its_seconds_were_busy(busy: list[float], starved: bool) -> None:
    load = Load([(20.0, 0.0), *((float(second), percent) for second, percent in enumerate(busy, 1)), (30.0, 0.0)])
    assert load.starved(1.0, 19.0) is starved


def test_the_watch_sees_seconds() -> None:
    with LoadWatch() as load:
        wait_until(lambda: len(load.seconds) >= 2)
    (first, percent), (second, _) = load.seconds[:2]
    assert first < second and 0.0 <= percent <= 100.0
