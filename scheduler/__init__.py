"""Exclusive periodic tasks for Django and Celery.

Start reading at ``scheduler.runner``: it carries one delivered tick through acquire, start, run, finish and release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.context import RunContext
    from scheduler.editing.declaring import declare
    from scheduler.refusal import is_skipped
    from scheduler.task import ExclusiveTask, exclusive_task

__all__ = ["ExclusiveTask", "RunContext", "declare", "exclusive_task", "is_skipped"]

_HOMES = {
    "ExclusiveTask": "scheduler.task",
    "exclusive_task": "scheduler.task",
    "RunContext": "scheduler.context",
    "declare": "scheduler.editing.declaring",
    "is_skipped": "scheduler.refusal",
}


def __getattr__(name: str) -> Any:
    """Import the public names on first use: Django imports this package before its apps are ready."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'scheduler' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
