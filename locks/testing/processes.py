"""Real child processes, forked as worker pools fork theirs."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable

_LONGEST_LIFE = 120  # seconds; whatever happens, the child ends


def fork_child(body: Callable[[], object]) -> int:
    """Run ``body`` in a forked child and return its pid; it never returns into the test runner.

    It ends with status 0 if ``body`` returned, and with 1 and a traceback on stderr if it raised.
    """
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork while threads exist. That is under test: the child uses none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(_LONGEST_LIFE)
        body()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def exit_status(pid: int) -> int:
    """Wait for the child to end; its exit status, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
