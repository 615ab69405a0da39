"""Daemon threads that are made when they are needed, and made again where they have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable


def running(thread: threading.Thread | None, target: Callable[[], object], name: str) -> threading.Thread:
    """``thread`` where it runs, else a new daemon thread that runs ``target``.

    Raises ``RuntimeError`` where the system has no thread to give. Keep what is returned, and nothing before: whoever
    remembers a thread that could not be started believes in it for the life of the process.
    """
    if thread is not None and thread.is_alive():
        return thread
    made = threading.Thread(target=target, name=name, daemon=True)
    made.start()
    return made
