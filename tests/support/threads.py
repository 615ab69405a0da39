"""A process that may start no other thread at present."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_thread_once(name: str) -> Iterator[None]:
    """The first start of a thread of that name fails, as where the system has none left."""
    start = threading.Thread.start
    failed: list[str] = []

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == name and not failed:
            failed.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail_once)
        yield
    assert failed
