"""Run as a script between a starter and the program it starts; replaced by that program (same process id).

    python -I -S launch.py PARENT DEATH_SIGNAL UID GID -- PROGRAM ARGUMENT...

It lends the program another user (UID -1: none) and asks the kernel to send DEATH_SIGNAL to it when PARENT
ends, however PARENT ends. A starter with threads may not safely run Python code between fork and exec, so
this runs after.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> None:
    parent, death_signal, uid, gid = (int(number) for number in arguments[:4])
    program = arguments[5:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After setuid, which clears the setting.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:  # it ended before the kernel was asked: nobody would send the signal
        sys.exit(1)
    try:
        os.execvp(program[0], program)  # noqa: S606 - replacing this process is the purpose
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
