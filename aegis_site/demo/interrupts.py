"""Ctrl-C as a wish that is looked at, not as an exception that may fall anywhere."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any, Self

SLICE = 0.1  # seconds until a wait has noticed


class Interrupts:
    """While entered, the first SIGINT or SIGTERM only sets ``asked``; a second one raises KeyboardInterrupt.

    An exception could fall between two statements, after the announcement that everything runs and before the
    block that prints the result: the demo then ended without a word. For the main thread only.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._heed)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until somebody asks for the end."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(SLICE, left))

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
