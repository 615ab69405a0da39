"""Places at which a test can stop the code, so that a race happens every time.

Nothing happens unless the environment variable AEGIS_FAILPOINTS names a folder, or a test in this process has put
a hook at the place. In the folder, a file named like the place stops each process that comes by: an empty file
holds it until the file is removed, the word ``kill`` ends it at once, as kill -9 would.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HOOKS: dict[str, Callable[[], None]] = {}


def failpoint(place: str) -> None:
    """Pass through, or do what a test has laid down for this place."""
    hook = HOOKS.get(place)
    if hook is not None:
        hook()
    folder = os.environ.get("AEGIS_FAILPOINTS")
    if folder:
        _obey(Path(folder) / place)


@contextmanager
def hooked(place: str, hook: Callable[[], None]) -> Iterator[None]:
    """Call ``hook`` in this process whenever the place is passed, until the block ends."""
    HOOKS[place] = hook
    try:
        yield
    finally:
        del HOOKS[place]


def _obey(order: Path) -> None:
    if not order.exists():
        return
    (order.parent / f"{order.name}.reached.{os.getpid()}").touch()
    if order.read_text().strip() == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while order.exists():
        time.sleep(0.01)
