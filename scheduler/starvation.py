"""Starvation: a schedule that is refused again and again by others under its lock name. No models: workers use it.

At equal instants the same schedule may win every time, and the other is prevented for ever although each lock did
its job. A log line here and a note beside the schedule (``scheduler.notes``) say so after three refusals in a row;
the remedy is to let one tick wait (``overlap = queue_one``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from scheduler.states import TickOutcome

logger = logging.getLogger("aegis.starvation")

IN_A_ROW = 3
REMEDY = f"refused {IN_A_ROW} times in a row: another run always has its lock name. Remedy: queue one."


def notice(schedule: str, before: Sequence[str] | None) -> None:
    """Warn once a row: at its third refusal. ``before``: the outcomes of the ticks before it, the latest first."""
    refused = [outcome == TickOutcome.PREVENTED for outcome in before or ()]
    if refused[: IN_A_ROW - 1] == [True] * (IN_A_ROW - 1) and not any(refused[IN_A_ROW - 1 :]):
        logger.warning("schedule %s was %s", schedule, REMEDY, extra={"action": "starved", "schedule": schedule})
