"""``on_lost="kill"``: the kernel ends the process at the end of the trust window.

A timer on CLOCK_BOOTTIME with SIGKILL. It needs neither the interpreter nor the process to run: a child that holds
the GIL, or that is stopped (SIGSTOP), is gone before the store lets somebody else in. Each renewal moves it. It is
set to the *end of the trust window*, a reading of the clock, and not to a number of seconds from now: counted from
the answer, a process that froze between question and answer would outlive its lease.

Not covered: what is in a socket's buffer already still goes out; processes that the body has started live on.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from billiard.process import current_process

from locks import Lease, LeaseLost
from locks.keepalive import Kept
from scheduler.loss.main_thread import let_in
from scheduler.loss.reaction import Reaction

logger = logging.getLogger("aegis.loss")

T = TypeVar("T")

_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1
_REST_OF_SIGEVENT = 64 - ctypes.sizeof(ctypes.c_void_p) - 2 * ctypes.sizeof(ctypes.c_int)


class _SigEvent(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        (
            "rest",
            ctypes.c_byte * _REST_OF_SIGEVENT,
        ),
    ]


class _TimeSpec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _TimerSpec(ctypes.Structure):
    _fields_ = [("interval", _TimeSpec), ("value", _TimeSpec)]


class DeadlineTimer:
    """A POSIX timer of this process that ends it with SIGKILL. Not inherited by a fork."""

    def __init__(self) -> None:
        self._library = _library()
        self._id = ctypes.c_void_p()
        event = _SigEvent(signo=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        self._do("timer_create", time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._id))

    def set(self, at: float) -> None:
        """End the process at ``at``, a reading of CLOCK_BOOTTIME in seconds; at once if that has passed."""
        nanoseconds = max(1, int(at * 1e9))
        value = _TimeSpec(*divmod(nanoseconds, 1_000_000_000))
        spec = _TimerSpec(_TimeSpec(0, 0), value)
        self._do("timer_settime", self._id, _TIMER_ABSTIME, ctypes.byref(spec), None)

    def delete(self) -> None:
        """Take the timer away; the process lives."""
        self._do("timer_delete", self._id)

    def _do(self, call: str, *arguments: Any) -> None:
        if getattr(self._library, call)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{call}: {os.strerror(number)}")


class Kill(Reaction):
    """Ends the process when the lease is over, for as long as the body is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a renewal must not set a timer that the end of the body has taken away
        self._timer: DeadlineTimer | None = None
        self._error: LeaseLost | None = None

    def lost(self, error: LeaseLost) -> None:
        """The store says so, before the window has ended: there is nothing to wait for."""
        with self._lock:
            self._error = error
            if self._timer is not None:
                _end_this_process(error)

    def renewed(self, lease: Lease) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.set(lease.trusted_until)

    def call(self, kept: Kept, body: Callable[[], T]) -> T:
        with self._lock:
            if self._error is not None:
                _end_this_process(self._error)
            self._timer = DeadlineTimer()
            self._timer.set(kept.lease.trusted_until)
        try:
            return let_in(body)
        finally:
            self.stand_down()

    def stand_down(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.delete()


def unavailable() -> str:
    """Why this process cannot be ended by such a timer; empty where it can."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_long) != 8 or _library() is None:
        return "it needs the timers of 64-bit Linux"
    process = current_process()
    if process.name == "MainProcess" or process.pid != os.getpid():
        return "it would end more than this run: it works in the children of a prefork pool only"
    if threading.current_thread() is not threading.main_thread():
        return "the body does not run in the main thread of its process"
    return ""


def _end_this_process(error: LeaseLost) -> None:
    logger.critical("this process ends itself, on_lost='kill': %s", error, extra={"action": "killed_on_lost"})
    os.kill(os.getpid(), signal.SIGKILL)


def _library() -> Any:
    """The C library with the timer calls, which older ones keep in a library of their own; None without."""
    for name in (None, "librt.so.1"):
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue
        if hasattr(library, "timer_create"):
            return library
    return None
