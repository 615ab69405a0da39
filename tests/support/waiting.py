"""Wait on a condition, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL = 0.02  # seconds


def wait_until(
    condition: Callable[[], T], timeout: float = 15, message: str | Callable[[], str] = "the condition held"
) -> T:
    """Call `condition` until it returns something true, and return that.

    After `timeout` seconds the test fails, saying "waited N s in vain until ..." with `message`: a text, or a
    function of what was seen last. An exception of the condition is not caught.
    """
    give_up = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > give_up:
            said = message() if callable(message) else message
            raise AssertionError(f"waited {timeout:g} s in vain until {said} (last value: {value!r})")
        time.sleep(POLL)
    return value
