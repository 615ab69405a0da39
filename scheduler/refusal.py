"""What a call is answered when it was refused.

A tick of a schedule is never answered: nobody waits for it, and its copies share one task id, so that an answer of
the copy that is refused would overwrite that of the copy that runs. A *call* (``delay()``, a part of a chain, group
or chord) may have somebody who waits. A chord whose part ends without a result waits for ever.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Refused(StrEnum):
    """How a refused call ends in Celery."""

    # Without a result. Where another's body is inside the tick is over; else it stays open and is delivered again,
    # under the same task id, until its deadline.
    IGNORE = "ignore"
    # As a success whose result says that it was skipped (``Skipped``). It is not delivered again.
    SKIP = "skip"
    # As a failure: ``LockNotAcquired``. It is not delivered again.
    FAIL = "fail"


class Skipped(dict[str, str]):
    """The result of a call that did not run: ``aegis`` ("skipped"), ``state``, ``reason``, ``lock_name``.

    A dictionary of texts, because a result goes through the serializer of the project and may be read by a process
    that has never heard of Aegis. There it is a plain dictionary: ask ``is_skipped``.
    """

    def __init__(self, *, state: str, reason: str, lock_name: str) -> None:
        super().__init__(aegis="skipped", state=state, reason=reason, lock_name=lock_name)


def is_skipped(result: Any) -> bool:
    """Whether a result, or the argument that a chain hands on, says that an exclusive task did not run."""
    return isinstance(result, dict) and result.get("aegis") == "skipped"


def is_part_of_canvas(request: Any) -> bool:
    """Whether something in Celery goes on from the end of this call: a chain, a group, a chord, a link."""
    return any(getattr(request, name, None) for name in ("chain", "chord", "group", "callbacks", "errbacks"))
