"""Waiting for what happens elsewhere, never for an amount of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true value of ``condition()``; ``AssertionError`` if there was none ``within``
    seconds.

    The bound is there to end a broken test, so make it generous: a machine may be busy.
    """
    give_up_at = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= give_up_at:
            raise AssertionError(f"not within {within:g} s: {what or condition}")
        time.sleep(0.01)
