"""The main thread of a run: what a handler of a signal may raise in it, and when.

    acquire, start   body     guard                          body     finish, release
    [shut]           [open]   [shut: BEGIN ... COMMIT]       [open]   [shut]
          ^ waits            ^ waits: raised at its end              ^ the body has ended: too late to stop it

Three things are raised there: LeaseLost (``interrupt``), Celery's soft time limit (SIGUSR1), and the SystemExit with
which Celery ends a child: at the hard limit, at a cold shutdown, when a task is revoked with ``terminate``, and when
the broker is lost and ``worker_cancel_long_running_tasks_on_connection_loss`` is set.

Without this a limit that is met while the end of a body is being stored breaks that statement. The row stays
"running", the reaper closes it as abandoned, and with ``max_attempts`` above 1 what was done is done again.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, TypeVar

logger = logging.getLogger("aegis.loss")

T = TypeVar("T")

SOFT_LIMIT: int | None = getattr(signal, "SIGUSR1", None)

# Those that make billiard's child raise SystemExit; any of them can be named in a revoke.
_ENDINGS = [int(one) for one in map(signal.__dict__.get, ("SIGTERM", "SIGQUIT", "SIGHUP")) if one is not None]


class Told(Protocol):
    """Somebody whose body is inside and who may have something to raise in it."""

    def raise_if_lost(self) -> None: ...


class MainThread:
    """What the handlers know. Written by the main thread only, one field by one plain assignment."""

    shut = False
    inside = 0  # bodies that are entered and not left
    bodies: list[Told] = []  # those of them that can be interrupted, the outermost first
    waiting: list[int] = []  # Celery's signals that came while it was shut
    told_to_end = False  # the body that is or was inside has been given SystemExit
    former: dict[int, Callable[[int, FrameType | None], Any]] = {}


def is_this_thread() -> bool:
    """Whether handlers of signals run in the calling thread."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def shield() -> Iterator[None]:
    """Raise nothing inside the block. What came meanwhile is raised at its end, unless the body has ended by then.

    A second request to end the process is not put off any more.
    """
    if not is_this_thread():
        yield
        return
    _stand_before_celery()
    before, MainThread.shut = MainThread.shut, True
    try:
        yield
    finally:
        MainThread.shut = before
        if not before:
            _raise_what_waits()


def let_in(body: Callable[[], T]) -> T:
    """Call a body; between its first and its last instruction the main thread is open."""
    if not is_this_thread():
        return body()
    before = MainThread.shut
    if not MainThread.inside:
        MainThread.told_to_end = False
    try:
        MainThread.inside += 1
        MainThread.shut = False
        _raise_what_waits()
        return body()
    finally:
        # Plain assignments, between which no handler runs.
        MainThread.shut = before
        MainThread.inside -= 1


def told_to_end() -> bool:
    """Whether the body of the calling thread was given the SystemExit of a child that has to end."""
    return is_this_thread() and MainThread.told_to_end


def must_stop() -> bool:
    """Whether a limit is over, or the process has to end: a body that the calling thread began now would not last."""
    return is_this_thread() and bool(MainThread.waiting)


def raise_losses() -> None:
    """Raise the loss of a lease of which the body has not been told, if there is one and the body is inside."""
    if not MainThread.shut:
        for body in list(MainThread.bodies):
            body.raise_if_lost()


def _stand_before_celery() -> None:
    """Put our handler before the two of a prefork child. Those of other pools, and of a project, are not touched.

    Looked at in each run, because a pool puts its own up after it has forked.
    """
    for number in (*_ENDINGS, SOFT_LIMIT):
        found = None if number is None else signal.getsignal(number)
        if number is not None and callable(found) and getattr(found, "__module__", "").startswith("billiard."):
            MainThread.former[number] = found
            signal.signal(number, _on_celerys_signal)


def _on_celerys_signal(number: int, frame: FrameType | None) -> None:
    insists = number != SOFT_LIMIT and number in MainThread.waiting
    if MainThread.shut and not insists:
        MainThread.waiting.append(number)
    else:
        _pass_on(number, frame)


def _pass_on(number: int, frame: FrameType | None = None) -> None:
    """Let Celery's own handler raise."""
    MainThread.waiting = [other for other in MainThread.waiting if other != number]
    MainThread.told_to_end = MainThread.told_to_end or number != SOFT_LIMIT
    MainThread.former[number](number, frame)


def _raise_what_waits() -> None:
    for number in MainThread.waiting:
        if number != SOFT_LIMIT:
            _pass_on(number)
    raise_losses()
    if SOFT_LIMIT in MainThread.waiting:
        if MainThread.inside:
            _pass_on(SOFT_LIMIT)
        MainThread.waiting = []
        logger.info("the soft time limit came when the body had ended, and is let pass")
