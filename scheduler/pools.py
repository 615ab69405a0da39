"""What a worker's pool means for exclusive tasks: pools of greenlets cannot keep every promise."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage
from django.core.checks import Warning as CheckWarning
from django.core.checks import register as register_check

_GREEN = ("gevent", "eventlet")


def is_green(pool: str) -> bool:
    """Whether a pool, named as in Celery's setting or by its module, runs its tasks as greenlets."""
    return any(kind in pool for kind in _GREEN)


def register() -> None:
    """Register the check; called once by the app's ``ready()``."""
    register_check(check_pool, "aegis")


def check_pool(**kwargs: Any) -> list[CheckMessage]:
    """A pool of greenlets that is chosen in the settings. One chosen on the command line is told by its worker."""
    from celery import current_app

    pool = str(current_app.conf.worker_pool or "")
    if not is_green(pool):
        return []
    return [
        CheckWarning(
            f"worker_pool is {pool!r}: a body that computes for longer than its TTL without giving way stops the "
            "renewals of its process and loses its lease.",
            hint="Use a TTL above the longest such stretch, or a prefork pool. See docs/reference/celery.md.",
            id="aegis.scheduler.W020",
        )
    ]
