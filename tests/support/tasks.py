"""Exclusive tasks of the tests; a worker takes them with ``-I tests.support.tasks``."""

from __future__ import annotations

from aegis_site.demo.tasks import work
from scheduler import ExclusiveTask, RunContext, exclusive_task


@exclusive_task(lock="database")
def busy(context: RunContext, seconds: float) -> None:
    """Be busy and touch no store."""
    work(context, seconds)


@exclusive_task(lock="database", bind=True, max_retries=3)
def flaky_import(self: ExclusiveTask, context: RunContext) -> str:
    """Import a file that is not there at the first attempt and is at the second."""
    if context.attempt == 1:
        raise self.retry(countdown=0)
    return "imported"


@exclusive_task(lock="database", time_limit=300)
def limited(context: RunContext) -> None:
    """A body that may run for up to five minutes."""
