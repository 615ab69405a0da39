"""Another strategy in the code: it guards the calls of a task once nothing is open, unless a schedule says which."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locks import LockNotAcquired
from scheduler import RunContext, exclusive_task
from scheduler.models import LockName, Tick
from scheduler.ticker import Ticker
from tests.support.engine import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)


@exclusive_task(strategy="none", lock_name="declared.once")
def called(context: RunContext, within: bool = False) -> str:
    """With ``within`` another call, and a beat's pass, while this one is inside."""
    if within:
        called.exclusive_lock = "database"
        called()
        Ticker().tick()
    return context.lock_alias


@pytest.fixture(autouse=True)
def as_declared() -> Iterator[None]:
    yield
    called.exclusive_lock = "none"


def strategy() -> tuple[str, str]:
    return LockName.objects.values_list("alias_in_force", "alias_wanted").get()


def test_another_strategy_is_in_force_once_nothing_is_open_and_a_beat_has_seen_it() -> None:
    assert called() == "none"
    called.exclusive_lock = "database"
    assert called() == "none" and strategy() == ("none", "database")
    Ticker().tick()
    assert called() == "database" and strategy() == ("database", "database")


def test_it_waits_for_a_body_that_is_inside_under_the_old_one() -> None:
    assert called(within=True) == "none"
    assert strategy() == ("none", "database")
    Ticker().tick()
    assert strategy() == ("database", "database")
    with pytest.raises(LockNotAcquired):  # its own second call is refused now
        called(within=True)


def test_a_schedule_of_the_name_says_which_and_the_task_does_not() -> None:
    make_schedule("daily", alias="redis", lock_name="declared.once")
    for _ in range(2):
        assert called() == "redis"
        Ticker().tick()
    assert strategy() == ("redis", "redis")
    assert {*Tick.objects.values_list("lock_alias", flat=True)} == {"redis"}
