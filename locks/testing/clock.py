"""Time under the test's control."""

from __future__ import annotations

from typing import Any

from ..backends.base import BaseLockBackend
from ..clock import boottime


class FrozenClock:
    """A clock that stands still: ``backend.clock = FrozenClock()``. It starts at this machine's real time."""

    def __init__(self) -> None:
        self.now = boottime()

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``."""
        self.now += seconds


def answer_late(backend: BaseLockBackend, verb: str, seconds: float) -> FrozenClock:
    """Freeze ``backend``'s clock and let ``seconds`` pass between the store's answer to ``verb`` and its
    arrival.

    ``verb`` is one of the storage verbs, such as ``_acquire``. This is what a process sees that was suspended
    after it sent its request and before it read the answer. Returns the clock.
    """
    clock = FrozenClock()
    ask = getattr(backend, verb)

    def ask_and_pause(*args: Any, **kwargs: Any) -> Any:
        answer = ask(*args, **kwargs)
        clock.advance(seconds)
        return answer

    backend.clock = clock
    setattr(backend, verb, ask_and_pause)
    return clock
