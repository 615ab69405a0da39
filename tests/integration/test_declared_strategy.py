"""Another strategy in the code: it guards the calls of a task once nothing is open, unless a schedule says which."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from locks import LockNotAcquired, lock_backends
from scheduler import RunContext, declare, exclusive_task, manual, switching
from scheduler.models import LockName, Schedule, Tick
from scheduler.switching import want_declared
from scheduler.ticker import Ticker
from tests.support.engine import make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "declared.once"


@exclusive_task(strategy="none", lock_name=NAME)
def called(context: RunContext, within: bool = False) -> str:
    """With ``within`` another call, and the first pass of a new beat, while this one is inside."""
    if within:
        called()
        Ticker().tick()
    return context.lock_alias


@pytest.fixture(autouse=True)
def as_declared() -> Iterator[None]:
    yield
    called.exclusive_lock = "none"


def strategy() -> tuple[str, str]:
    return LockName.objects.values_list("alias_in_force", "alias_wanted").get()


def test_another_strategy_is_in_force_once_a_beat_that_knows_it_has_begun() -> None:
    assert called() == "none"
    called.exclusive_lock = "database"
    assert called() == "none"
    Ticker().tick()
    assert called() == "database" and strategy() == ("database", "database")


def test_a_beat_that_was_forgotten_with_old_code_does_not_undo_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.ticker.HEAL_INTERVAL", 0.0)
    called()
    forgotten = Ticker()
    forgotten.tick()
    called.exclusive_lock = "database"
    Ticker().tick()
    called.exclusive_lock = "none"
    forgotten.tick()
    assert strategy() == ("database", "database")


def test_it_waits_for_a_body_that_is_inside_under_the_old_one() -> None:
    called()
    called.exclusive_lock = "database"
    beat = Ticker()
    assert called(within=True) == "none"
    assert strategy() == ("none", "database")
    beat.tick()
    assert strategy() == ("database", "database")
    with pytest.raises(LockNotAcquired):  # its own second call is refused now
        called(within=True)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_schedule_of_the_name_says_which_and_the_task_does_not(enabled: bool) -> None:
    make_schedule("daily", alias="redis", lock_name=NAME, enabled=enabled)
    for _ in range(2):
        assert called() == "redis"
        Ticker().tick()
    assert strategy() == ("redis", "redis")
    assert {*Tick.objects.values_list("lock_alias", flat=True)} == {"redis"}


def test_a_schedule_that_is_declared_later_takes_what_the_task_declares_and_not_what_calls_made_of_the_name() -> None:
    called()
    called.exclusive_lock = "database"
    declare("daily", task=called.name, every=86_400, lock_name=NAME)
    assert strategy() == ("none", "database")
    Ticker().tick()
    assert strategy() == ("database", "database")


def test_a_strategy_that_locks_does_not_know_and_one_that_not_all_declare_are_left_alone() -> None:
    called()
    called.exclusive_lock = "nowhere"
    Ticker().tick()
    assert strategy() == ("none", "none")
    called.exclusive_lock = "database"
    other = exclusive_task(strategy="redis", lock_name=NAME)(_other)
    try:
        Ticker().tick()
        assert strategy() == ("none", "none")
    finally:
        other.app.tasks.unregister(other.name)


def _other(context: RunContext) -> None:
    """Declared beside the first for a moment."""


def test_a_schedule_that_is_being_declared_is_not_overruled() -> None:
    """Its name's row is held, so it is left for the next look, which comes because this one says so."""
    called()
    called.exclusive_lock = "database"
    looks: list[bool] = []

    def look() -> None:
        looks.append(want_declared())
        connection.close()

    with transaction.atomic():
        declare("daily", task=called.name, every=86_400, lock_name=NAME, strategy="redis")
        looking = threading.Thread(target=look)
        looking.start()
        looking.join(30)
    assert looks == [False]
    assert want_declared() is True
    assert strategy() == ("none", "redis") and Schedule.objects.exists()


def test_a_schedule_that_is_stored_after_the_first_look_is_not_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    called()
    called.exclusive_lock = "database"
    want = switching._want

    def meanwhile(name: str, alias: str) -> bool:
        declare("daily", task=called.name, every=86_400, lock_name=NAME, strategy="redis")
        return want(name, alias)

    monkeypatch.setattr(switching, "_want", meanwhile)
    want_declared()
    assert strategy() == ("none", "redis")


def test_a_name_of_which_nothing_is_due_for_long_is_switched_too() -> None:
    schedule = make_schedule("daily", alias="none", lock_name=NAME, every_seconds=86_400)
    LockName.objects.update(alias_wanted="database")
    tick = make_tick(schedule)
    Ticker().tick()
    assert strategy() == ("none", "database"), "a tick is open"
    tick.delete()
    Ticker().tick()
    assert strategy() == ("database", "database")


def test_a_call_that_meets_a_switch_lives_by_the_new_strategys_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    called()
    patiently, switched = manual._patiently, []

    def meanwhile(sql: str, *given: Any) -> Any:
        if sql == manual._MAKE and not switched:
            switched.append(LockName.objects.update(alias_wanted="optimistic", alias_in_force="optimistic"))
        return patiently(sql, *given)

    monkeypatch.setattr(manual, "_patiently", meanwhile)
    assert called() == "optimistic" and switched == [1]
    assert Tick.objects.latest("pk").ttl == lock_backends["optimistic"].ttl != lock_backends["none"].ttl
