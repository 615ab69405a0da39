"""From audit rows to what ``collisions`` computes with."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from scheduler.collisions import Body
from scheduler.models import Execution, LockRelease

_FIELDS = (
    "id", "tick_id", "attempt", "lock_name", "worker", "began", "state", "started_at", "ended_at", "ran",
    "heartbeat_at", "returned_at", "lock_alias", "guarded", "forced",
)  # fmt: skip


def bodies_of(executions: QuerySet[Execution]) -> list[Body]:
    """Every body that began among ``executions``, in the order of starting, by one query."""
    releases = LockRelease.objects.filter(lease_id=OuterRef("lease_id"), result=LockRelease.Result.RELEASED)
    begun = executions.filter(began=True).annotate(forced=Exists(releases))
    rows = begun.order_by("started_at", "id").values_list(*_FIELDS)
    return [Body(**dict(zip(("execution_id", *_FIELDS[1:]), row, strict=True))) for row in rows]
