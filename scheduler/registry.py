"""The tasks that may be scheduled: those declared exclusive in code, and no others."""

from __future__ import annotations

from celery import current_app

from scheduler.task import ExclusiveTask


def exclusive_tasks() -> dict[str, ExclusiveTask]:
    """Name -> task of everything declared with ``@exclusive_task`` in the installed apps."""
    current_app.loader.import_default_modules()
    current_app.finalize(auto=True)
    found = {name: task for name, task in current_app.tasks.items() if isinstance(task, ExclusiveTask)}
    return dict(sorted(found.items()))
