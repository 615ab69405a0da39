"""Exclusive tasks as a team would write them, with work that takes a stated number of seconds.

Each does its effect when it enters and says when it leaves. Nothing in here protects anything: whether an effect
happens twice is decided by the schedule's strategy and tick guard alone.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import models
from django.db.models import Func

from aegis_site.demo.models import Effect
from scheduler import RunContext, exclusive_task

# How often a long piece of work asks whether its lease is still its own, seconds.
STEP = 0.25


class DatabaseClock(Func):
    """The database's clock at the moment of the statement, also inside a transaction."""

    template = "clock_timestamp()"
    output_field = models.DateTimeField()


@contextmanager
def done(kind: Effect.Kind, context: RunContext, *, amount_cents: int = 0) -> Iterator[None]:
    """Write the effect down on entering, and the time of leaving on leaving."""
    fire_time = f"{context.scheduled_for:%Y%m%d-%H%M%S.%f}"
    effect = Effect.objects.create(
        kind=kind,
        schedule=context.schedule,
        subject=f"{kind.label.split()[0].lower()} {fire_time}",
        amount_cents=amount_cents,
        resource=context.lock_name,
        worker=context.worker,
        execution_id=context.execution_id,
        entered_at=DatabaseClock(),
    )
    try:
        yield
    finally:
        Effect.objects.filter(pk=effect.pk).update(left_at=DatabaseClock())


def work(context: RunContext, seconds: float) -> None:
    """Be busy for ``seconds``, asking between the steps whether the lease is still ours."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(STEP, left))
        context.check()


def amount_of(context: RunContext) -> int:
    """The invoice of a fire time has the same amount however often it is settled: 10.00 to 999.99."""
    return 1_000 + zlib.crc32(f"{context.schedule}{context.scheduled_for}".encode()) % 99_000


@exclusive_task(strategy="database")
def settle_invoices(context: RunContext, seconds: float = 1.0) -> None:
    """Settle the invoice that is due at this fire time."""
    with done(Effect.Kind.SETTLEMENT, context, amount_cents=amount_of(context)):
        work(context, seconds)


@exclusive_task(strategy="database")
def ship_orders(context: RunContext, seconds: float = 1.0) -> None:
    """Ship the orders that are due at this fire time."""
    with done(Effect.Kind.SHIPMENT, context):
        work(context, seconds)


@exclusive_task(strategy="database")
def send_digest(context: RunContext, seconds: float = 0.0) -> None:
    """Send the digest of this fire time."""
    with done(Effect.Kind.DIGEST, context):
        work(context, seconds)
