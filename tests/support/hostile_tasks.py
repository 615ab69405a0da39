"""Exclusive tasks that behave badly; a worker takes them with ``-I tests.support.hostile_tasks``."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

from django.db import connections

from scheduler import RunContext, exclusive_task
from tests.support.celery_tasks import nap


class UnpicklableError(Exception):
    """Holds a lock, which nothing can pickle, and takes two arguments, which pickle does not remember."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__("cannot be sent")
        self.lock = threading.Lock()


@exclusive_task(lock="redis", lock_name="hostile.raise")
def misbehave(context: RunContext, how: str) -> Any:
    """Raise, close, fork or hand back what a runner does not expect."""
    if how == "unpicklable":
        raise UnpicklableError(1, 2)
    if how == "system-exit":
        raise SystemExit(3)
    if how == "keyboard-interrupt":
        raise KeyboardInterrupt
    if how == "close-connections":
        connections.close_all()
    elif how == "subprocess":
        subprocess.run([sys.executable, "-c", "pass"], check=True)
    elif how == "fork":
        _fork()
    elif how == "thread":
        thread = threading.Thread(target=context.check)
        thread.start()
        thread.join()
    elif how == "unpicklable-value":
        return threading.Lock()
    return how


def _fork() -> None:
    """A child that leaves the body by an exception, as careless code does."""
    pid = os.fork()
    if pid == 0:
        raise SystemExit(0)
    os.waitpid(pid, 0)


@exclusive_task(lock="redis", lock_name="hostile.slow")
def slow(context: RunContext, seconds: float) -> None:
    """Be inside for some seconds, or until the test lets it out."""
    nap(context, seconds)


@exclusive_task(lock="database", lock_name="hostile.short")
def short(context: RunContext) -> dict[str, int]:
    """Nothing at all."""
    return {}
