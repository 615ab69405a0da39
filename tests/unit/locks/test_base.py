from __future__ import annotations

import dataclasses
import math
import os
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.base import MAX_TTL, NAME_PATTERN, Lease, new_lease_id, validate_name, validate_ttl
from locks.clock import boottime
from locks.testing import exit_status, fork_child


def make_lease(**changes: object) -> Lease:
    values: dict[str, object] = {
        "name": "a", "alias": "x", "lease_id": uuid.uuid4(), "holder": "h", "ttl": 1.0, "grant_no": None,
        "trusted_until": math.inf,
    }  # fmt: skip
    return Lease(**{**values, **changes})  # type: ignore[arg-type]


@given(st.text(max_size=210))
def test_a_name_is_taken_exactly_if_the_pattern_says_so(name: str) -> None:
    allowed = 1 <= len(name) <= 200 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._:-")
    assert bool(re.fullmatch(NAME_PATTERN, name)) == allowed or name.endswith("\n")
    if allowed:
        assert validate_name(name) == name
    else:
        with pytest.raises(ValueError, match="Invalid lock name"):
            validate_name(name)


@given(st.from_regex(r"[a-z0-9._:-]{1,200}", fullmatch=True))
def test_valid_names_are_taken(name: str) -> None:
    assert validate_name(name) == name


def test_an_invalid_name_says_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"'Bad Name'.*1 to 200 of the characters"):
        validate_name("Bad Name")


@given(st.floats(min_value=0.001, max_value=MAX_TTL))
def test_a_ttl_is_seconds(ttl: float) -> None:
    assert validate_ttl(ttl) == ttl


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, -math.inf, True, "1", None, MAX_TTL * 2])
def test_what_is_no_ttl_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError, match="Invalid ttl"):
        validate_ttl(ttl)


def test_ttl_bounds_are_told() -> None:
    with pytest.raises(ValueError, match=r"below 0\.5 seconds"):
        validate_ttl(0.4, minimum=0.5)
    with pytest.raises(ValueError, match="at most 5 seconds"):
        validate_ttl(6, maximum=5)


def test_a_lease_validates_itself_and_does_not_change() -> None:
    lease = make_lease()
    with pytest.raises(dataclasses.FrozenInstanceError):
        lease.name = "b"  # type: ignore[misc]
    with pytest.raises(ValueError, match="Invalid lock name"):
        make_lease(name="A")
    with pytest.raises(ValueError, match="Invalid ttl"):
        make_lease(ttl=0)


def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    reading, writing = os.pipe()
    new_lease_id()
    child = fork_child(lambda: os.write(writing, new_lease_id().bytes))
    mine = new_lease_id()
    assert exit_status(child) == 0
    assert uuid.UUID(bytes=os.read(reading, 16)) != mine
    os.close(reading)
    os.close(writing)


def test_the_clock_goes_forward() -> None:
    first = boottime()
    assert boottime() >= first
