"""What a run does when its lease is lost; the base does nothing by itself, which is ``on_lost="check"``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from scheduler.loss.main_thread import let_in

if TYPE_CHECKING:
    from locks import Lease, LeaseLost
    from locks.keepalive import Kept

T = TypeVar("T")


class Reaction:
    """Told by keep-alive, from its threads; the body is called through it in the thread of the run."""

    def lost(self, error: LeaseLost) -> None:
        """The lease is lost. Called once, at the end of the trust window at the latest."""

    def renewed(self, lease: Lease) -> None:
        """The lease was renewed: ``lease`` is its newest handle."""

    def call(self, kept: Kept, body: Callable[[], T]) -> T:
        """Call the body. Only between its first and its last instruction may a reaction touch it."""
        return let_in(body)

    def committed(self, number: int) -> None:
        """``number`` guarded transactions of the body are committed by now."""

    def stand_down(self) -> None:
        """The body's end is recorded already, by its own guarded commit: leave it alone from here on."""
