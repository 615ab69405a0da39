"""Pruning: old ticks, with their executions, leave the ledger; so do processes that have long been silent, and
closed alerts.

Never deleted: a tick that is open; a tick one of whose executions is running, which without the tick guard may be
closed already; and the newest tick that each schedule's recurrence named, which says when it fired last, however
seldom it does. Change rows are kept: they are few, and they answer "who switched this off".
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from scheduler.conf import conf
from scheduler.models import Alert, AlertDelivery, Execution, Instance, SummedSlice, Tick
from scheduler.states import OPEN_TICKS, ExecutionState

logger = logging.getLogger("aegis.beat")

BATCH = 1000  # ticks deleted in one transaction: workers and beats never wait for more
MOST_DAYS = 36_500
EVERY = 60.0  # seconds between two rounds of a beat
BATCHES_OF_A_ROUND = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows were deleted."""

    ticks: int = 0
    executions: int = 0
    instances: int = 0


def can_keep(days: Any) -> bool:
    """Whether KEEP_DAYS may be that; None keeps everything."""
    return days is None or (type(days) is int and 1 <= days <= MOST_DAYS)


def kept_days() -> int | None:
    """Days after which beats delete what has ended; None: they delete nothing."""
    days: int | None = conf("KEEP_DAYS")
    return days if can_keep(days) else None


def keep_days() -> None:
    """A round of a beat: some of what ended more than KEEP_DAYS ago. Nothing where the setting is None."""
    if (days := kept_days()) is not None:
        prune(timedelta(days=days), batches=BATCHES_OF_A_ROUND)
    elif (wrong := conf("KEEP_DAYS")) is not None:
        # Celery's beat runs no checks, and 0 days ago would be everything.
        logger.error("nothing is deleted: AEGIS['KEEP_DAYS'] is %r; give whole days, 1 to %d", wrong, MOST_DAYS)


def prune(older_than: timedelta, *, batches: int | None = None) -> Pruned:
    """Delete what ended before ``older_than`` ago by the database's clock, oldest first, in batches.

    ``batches``: at the most; all of them if not given. It may be stopped at any moment and run beside workers, beats
    and another prune. An empty ledger is no error.
    """
    ticks = executions = 0
    for _ in range(batches) if batches else itertools.count():
        if not (batch := list(_old_ticks(older_than).values_list("pk", flat=True)[:BATCH])):
            break
        _, deleted = Tick.objects.filter(pk__in=batch).exclude(state__in=OPEN_TICKS).delete()
        ticks += deleted.get(Tick._meta.label, 0)
        executions += deleted.get(Execution._meta.label, 0)
        if not deleted:
            break
    SummedSlice.objects.filter(start__lt=Now() - older_than).delete()
    silent, _ = Instance.objects.filter(heartbeat_at__lt=Now() - older_than).delete()
    # Those that ended, with what was sent of them; and tests of the channels, which belong to none.
    Alert.objects.filter(state=Alert.State.CLOSED, closed_at__lt=Now() - older_than).delete()
    AlertDelivery.objects.filter(alert=None, sent_at__lt=Now() - older_than).delete()
    return Pruned(ticks=ticks, executions=executions, instances=silent)


def _old_ticks(older_than: timedelta) -> QuerySet[Tick]:
    of_schedule = Tick.objects.filter(schedule=OuterRef("schedule"), manual_key=None)
    newest = of_schedule.order_by("-fire_time").values("pk")[:1]  # one probe of the unique index
    inside = Execution.objects.filter(tick=OuterRef("pk"), state=ExecutionState.RUNNING)
    return (
        Tick.objects.filter(fire_time__lt=Now() - older_than, closed_at__lt=Now() - older_than)
        .exclude(state__in=OPEN_TICKS)
        .filter(Q(schedule=None) | Q(manual_key__isnull=False) | ~Q(pk=Subquery(newest)), ~Exists(inside))
        .order_by("fire_time")
    )
