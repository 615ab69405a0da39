"""``on_lost``: what a task wants done when its lease is lost, and whether this process can do it."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Any

from locks import connection
from scheduler.loss import interrupt, kill
from scheduler.loss.interrupt import Interrupt
from scheduler.loss.kill import Kill
from scheduler.loss.reaction import Reaction

logger = logging.getLogger("aegis.loss")


class OnLost(StrEnum):
    """How a body is told that its lease is lost. Whatever it returns afterwards, the run counts as lost."""

    # ``context.check()`` raises LeaseLost when the body asks.
    CHECK = "check"
    # LeaseLost is also raised in the middle of the body, where it runs in a main thread; else as CHECK.
    INTERRUPT = "interrupt"
    # The process ends at the end of the trust window, even while it is frozen. Refused where that is impossible.
    KILL = "kill"


_told: set[str] = set()


def cannot(on_lost: OnLost, backend: Any) -> str:
    """Why a delivery must not run here under ``on_lost``, with the remedy; empty where it may.

    Only ``kill`` is ever refused. Who chose it wants a frozen worker to write nothing; doing less in silence would
    be found out on the day on which it matters.
    """
    if on_lost is not OnLost.KILL or connection.is_routed():
        return ""
    if not backend.trust_window:
        return (
            f"on_lost='kill' needs a lease that ends by a clock, and one of strategy {backend.alias!r} does not: "
            "choose another strategy for the lock name, or on_lost='interrupt'"
        )
    why = kill.unavailable()
    return f"on_lost='kill': {why}. Send the task to a prefork worker, or choose on_lost='interrupt'" if why else ""


def reaction_to(on_lost: OnLost) -> Reaction:
    """The reaction of one run, in the thread that calls its body."""
    if connection.is_routed():  # a test's transaction: nobody else sees it, and closing its connection would end it
        return Reaction()
    if on_lost is OnLost.KILL:
        return Kill()
    if on_lost is OnLost.INTERRUPT:
        why = interrupt.unavailable()
        if not why:
            return Interrupt()
        if why not in _told:
            _told.add(why)
            logger.warning(
                "on_lost='interrupt' is done as 'check' here: %s. Call context.check() between the steps.", why,
                extra={"action": "interrupt_unavailable"},
            )  # fmt: skip
    return Reaction()
