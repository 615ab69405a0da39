"""Idempotency keys: the same for one step of one tick, and for nothing else."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from scheduler.once_key import once_key

FIRE = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def key(step: str = "mail", **parts: Any) -> str:
    return once_key(step, **{"schedule": "nightly", "fire_time": FIRE, "manual_key": None, **parts})


def test_the_same_step_has_the_same_key_also_in_the_next_version() -> None:
    """Others keep these keys: a change here would send every mail once more."""
    assert key() == "aegis-04309e4e6740257f8ded771e33ea22c5811ad495"


def test_a_zone_is_only_a_spelling() -> None:
    assert key(fire_time=FIRE.astimezone(timezone(timedelta(hours=5)))) == key()


def test_each_part_makes_another_key() -> None:
    keys = {
        key(),
        key("payment"),
        key(schedule="nightly2"),
        key(fire_time=FIRE + timedelta(microseconds=1)),
        key(manual_key="run:1"),
        key(manual_key="run:2"),
        key("payment", manual_key="run:1"),
        key("1", schedule="nightly", manual_key="run:"),
        key('mail", "x', schedule="nightly"),
        key("x", schedule='nightly", "mail'),
    }
    assert len(keys) == 10


def test_a_manual_tick_counts_by_its_key_alone() -> None:
    asked_again = {"schedule": "", "fire_time": FIRE + timedelta(seconds=1)}
    assert key(manual_key="call:7", **asked_again) == key(manual_key="call:7")


@pytest.mark.parametrize("step", ["mail", "a b\r\nX: y", "Überweisung 💶", "x" * 10_000])
def test_it_may_stand_in_a_header_or_a_message_id(step: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]{46}", key(step))


def test_a_step_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name the step"):
        key("")
