"""The one local clock of this package: how long ago, never what time it is.

Expiry is always decided by the clock of the store. The local clock only answers "may this lease still be
trusted", by counting from before the request was sent. It must therefore go on while the machine is
suspended, because the store's clock does; ``time.monotonic()`` stops then on Linux, ``CLOCK_BOOTTIME`` does
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds on a clock that never steps back. Services take one; tests hand in a frozen one."""

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds since an arbitrary point, counting suspended time where the system can tell it.

    ``CLOCK_BOOTTIME`` where there is one (Linux), else ``time.monotonic()``. Comparable between the
    processes of one machine on Linux; never between machines.
    """
    if _BOOTTIME is None:
        return time.monotonic()
    return time.clock_gettime(_BOOTTIME)
