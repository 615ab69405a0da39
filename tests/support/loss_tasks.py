"""Exclusive tasks that lose their leases; a worker takes them with ``-I tests.support.loss_tasks``."""

from __future__ import annotations

import time
from contextlib import nullcontext

from celery.exceptions import SoftTimeLimitExceeded

from aegis_site.demo.models import Effect
from aegis_site.demo.tasks import DatabaseClock
from scheduler import RunContext, exclusive_task
from tests.support.doors import is_open
from tests.support.loss import lose_lease

LONG = 120.0  # seconds; no body gets that far


def write(context: RunContext, subject: str) -> None:
    """One effect, outside of any guard unless the caller is in one."""
    Effect.objects.create(
        kind=Effect.Kind.DIGEST, schedule=context.schedule, subject=subject, resource=context.lock_name,
        worker=context.worker, entered_at=DatabaseClock(),
    )  # fmt: skip


def scribble(context: RunContext, *, guarded: bool) -> None:
    """Write all the time, and never ask whether the lease still holds."""
    end = time.monotonic() + LONG
    while time.monotonic() < end and not is_open(context.schedule):
        time.sleep(0.002)  # eight of them share the machine with their keep-alives
        with context.commit_guard() if guarded else nullcontext():
            write(context, f"token {context.fencing_token}")


@exclusive_task(lock="database", on_lost="check")
def scribble_guarded(context: RunContext) -> None:
    scribble(context, guarded=True)


@exclusive_task(lock="database", on_lost="kill")
def scribble_until_killed(context: RunContext) -> None:
    scribble(context, guarded=False)


@exclusive_task(lock="database", on_lost="check")
def scribble_carelessly(context: RunContext) -> None:
    scribble(context, guarded=False)


@exclusive_task(lock="database", on_lost="interrupt", soft_time_limit=3, time_limit=8)
def limited(context: RunContext, how: str) -> None:
    """Meet Celery's limits, the loss of the lease, or both; each step that was reached leaves an effect."""
    write(context, f"{how}: began")
    if how in ("lost", "lost, then soft"):
        lose_lease(context)
    try:
        time.sleep(LONG)
    except SoftTimeLimitExceeded:
        write(context, f"{how}: soft limit")
        if how == "soft":
            raise
        if how == "soft, then lost":
            lose_lease(context)
        time.sleep(LONG)  # until the loss, or the hard limit


@exclusive_task(lock="database", on_lost="interrupt")
def wait_for_loss(context: RunContext) -> None:
    """Where nobody interrupts it, it asks."""
    lose_lease(context)
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(0.05)
        if context.lost:
            time.sleep(2.0)  # an interrupt comes first, where one can
            write(context, "asked")
            return


@exclusive_task(lock="database", on_lost="interrupt")
def settle_once(context: RunContext) -> None:
    """The effect and the end of the run in one transaction."""
    with context.commit_guard(finish=True):
        write(context, context.once_key("settle"))
