"""The tasks that may be scheduled: those declared exclusive in code, and no others."""

from __future__ import annotations

import threading
from contextlib import suppress

from celery import current_app

from scheduler.manual import lock_name_of
from scheduler.task import ExclusiveTask


class _Import(threading.local):
    """Of this thread. Celery runs the system checks while it imports, and a check asks for the tasks."""

    running = False


_import = _Import()
_imported: set[int] = set()  # of which Celery apps, by id; one import each is enough


def exclusive_tasks() -> dict[str, ExclusiveTask]:
    """Name -> task of everything declared with ``@exclusive_task`` in the installed apps.

    Raises what the import of a task's module raises. Asked in the middle of that import: those known so far.
    """
    app = current_app._get_current_object()
    # In a worker or a beat Celery has done it. Once more would set up Django anew, and with it the logging.
    if id(app) not in _imported and not _import.running and not app.loader.worker_initialized:
        _import.running = True
        try:
            app.loader.import_default_modules()
        finally:
            _import.running = False
        _imported.add(id(app))
    app.finalize(auto=True)
    found = {name: task for name, task in app.tasks.items() if isinstance(task, ExclusiveTask)}
    return dict(sorted(found.items()))


def declared_strategies() -> dict[str, dict[str, str]]:
    """Lock name -> task -> the strategy that the task declares for its calls. Raises as ``exclusive_tasks`` does."""
    found: dict[str, dict[str, str]] = {}
    for task in exclusive_tasks().values():
        with suppress(ValueError):  # its calls are refused
            found.setdefault(lock_name_of(task), {})[task.name] = task.exclusive_lock
    return found


def declared_names() -> frozenset[str] | None:
    """The names of the tasks declared with ``@exclusive_task`` here; None where a module of tasks cannot be imported.

    Goes through all tasks of the project: ask once for a page of schedules.
    """
    try:
        return frozenset(exclusive_tasks())
    except Exception:  # whatever a project's module raises
        return None
