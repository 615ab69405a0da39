"""Bodies of a soak: enter, change something, leave, and say so.

The three ways to lose a lease are three tasks, because ``on_lost`` belongs to a task. None of them asks
``context.check()``: what protects the effects is the guard alone, or nothing.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from django.db import transaction

from aegis_site.soak.journal import DatabaseClock, note, stay
from aegis_site.soak.models import Counter, Mark
from scheduler import RunContext, exclusive_task


def work(context: RunContext, seconds: float, guarded: bool, finish: bool) -> None:
    """Half the time, the effect, the other half. With ``finish`` the effect's commit is the end of the run."""
    with stay(context):
        time.sleep(seconds / 2)
        with _block(context, guarded, finish):
            _count(context)
        note("effect", context)
        if not finish:
            time.sleep(seconds / 2)


def _block(context: RunContext, guarded: bool, finish: bool) -> AbstractContextManager[None]:
    if guarded and context.fencing_token is not None:
        return context.commit_guard(finish=finish)
    return transaction.atomic()


def _count(context: RunContext) -> None:
    counter, _ = Counter.objects.get_or_create(name=context.lock_name)
    Mark.objects.create(
        name=context.lock_name,
        schedule=context.schedule,
        subject=context.scheduled_for.isoformat(),
        execution=context.execution_id,
        token=context.fencing_token,
        at=DatabaseClock(),
    )
    Counter.objects.filter(pk=counter.pk).update(value=counter.value + 1)


@exclusive_task(strategy="database", on_lost="check")
def count(context: RunContext, seconds: float, guarded: bool = True, finish: bool = False) -> None:
    """A body that never asks whether its lease is over."""
    work(context, seconds, guarded, finish)


@exclusive_task(strategy="database", on_lost="interrupt")
def count_interrupted(context: RunContext, seconds: float, guarded: bool = True, finish: bool = False) -> None:
    """A body that is interrupted when its lease is over."""
    work(context, seconds, guarded, finish)


@exclusive_task(strategy="database", on_lost="kill")
def count_killed(context: RunContext, seconds: float, guarded: bool = True, finish: bool = False) -> None:
    """A body whose process is ended when its lease is over."""
    work(context, seconds, guarded, finish)
