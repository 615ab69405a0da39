"""Exclusive tasks that meet Celery's own ways; a worker takes them with ``-I tests.support.celery_tasks``."""

from __future__ import annotations

import time
from typing import Any

from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded

from aegis_site.demo.models import Effect
from aegis_site.demo.tasks import STEP, done, work
from locks import LeaseLost
from scheduler import ExclusiveTask, RunContext, exclusive_task
from tests.support.doors import is_open
from tests.support.loss import take_lease_away
from tests.support.loss_tasks import LONG, write


def nap(context: RunContext, seconds: float) -> int:
    """Be inside for some seconds, or until `let_out`, with an effect that says when."""
    end = time.monotonic() + seconds
    with done(Effect.Kind.DIGEST, context):
        while (left := end - time.monotonic()) > 0 and not is_open(context.schedule):
            work(context, min(STEP, left))
    return context.attempt


@exclusive_task(lock="database")
def early(context: RunContext, seconds: float) -> int:
    return nap(context, seconds)


@exclusive_task(lock="database", acks_late=True)
def late(context: RunContext, seconds: float) -> int:
    return nap(context, seconds)


@exclusive_task(lock="database", acks_late=True, reject_on_worker_lost=True)
def rejecting(context: RunContext, seconds: float) -> int:
    return nap(context, seconds if context.attempt == 1 else 0.0)


@exclusive_task(lock="database")
def first_long(context: RunContext, seconds: float) -> int:
    """Long at the first attempt only."""
    return nap(context, seconds if context.attempt == 1 else 0.0)


@exclusive_task(lock="database", acks_late=True)
def first_long_late(context: RunContext, seconds: float) -> int:
    """Long until there is an effect of its schedule, however many attempts or deliveries that takes."""
    return nap(context, 0.0 if Effect.objects.filter(schedule=context.schedule).exists() else seconds)


@exclusive_task(lock="database", bind=True, max_retries=2)
def asking(self: ExclusiveTask, context: RunContext, countdown: float, times: int) -> int:
    """Ask for another attempt, a number of times."""
    write(context, f"attempt {context.attempt}")
    if context.attempt <= times:
        raise self.retry(countdown=countdown)
    return context.attempt


@exclusive_task(lock="database", autoretry_for=(Exception,), max_retries=1, default_retry_delay=0)
def autoretrying(context: RunContext, how: str) -> int:
    """Fail, and let Celery ask for another attempt; or lose the lease, which is no failure."""
    write(context, f"attempt {context.attempt}")
    if how == "lose":
        take_lease_away(context.lock_alias, context.lock_name)
        context.kept._lose(LeaseLost("lost", name=context.lock_name))  # as keep-alive does it
        context.check()
    if how == "always" or context.attempt == 1:
        raise ValueError(how)
    return context.attempt


@exclusive_task(lock="database", soft_time_limit=3)
def soft(context: RunContext, how: str) -> str:
    """Meet the soft limit; ``how``: let it through, catch it, or be out before it comes."""
    write(context, "began")
    if how == "short":
        return how
    try:
        if how == "in a guard":
            with context.commit_guard():
                write(context, "guarded")
                time.sleep(5)  # longer than the limit
        time.sleep(LONG)
    except SoftTimeLimitExceeded:
        write(context, "soft limit")
        if how != "caught":
            raise
    return how


@exclusive_task(lock="database", time_limit=4)
def hard(context: RunContext) -> None:
    with done(Effect.Kind.DIGEST, context):
        time.sleep(LONG if context.attempt == 1 else 0.0)


@exclusive_task(lock="none", lock_name="ways.watched")
def watched(context: RunContext, seconds: float) -> int:
    return nap(context, seconds)


@exclusive_task(lock="database", lock_name="ways.part")
def part(context: RunContext, seconds: float = 0.0) -> str:
    return f"part {nap(context, seconds)}"


@exclusive_task(lock="database", lock_name="ways.part", refused="fail")
def failing_part(context: RunContext) -> str:
    return "part"


@exclusive_task(lock="database", lock_name="ways.part", refused="skip")
def skipping_part(context: RunContext) -> str:
    return "part"


@exclusive_task(lock="database", lock_name="ways.late", acks_late=True)
def late_part(context: RunContext, seconds: float = 0.0) -> str:
    return f"part {nap(context, seconds)}"


@exclusive_task(lock="database", lock_name="ways.asking", bind=True, max_retries=2)
def asking_part(self: ExclusiveTask, context: RunContext) -> str:
    if context.attempt == 1:
        raise self.retry(countdown=0)
    return f"part {context.attempt}"


@shared_task
def after(result: Any) -> dict[str, Any]:
    return {"after": result}


@shared_task
def on_error(*args: Any) -> None:
    Effect.objects.create(kind=Effect.Kind.DIGEST, schedule="", subject="errback", resource="", worker="",
                          entered_at="2026-01-01T00:00:00Z")  # fmt: skip


@exclusive_task(lock="database")
def computing(context: RunContext, seconds: float) -> None:
    """Compute without giving way to anything, and never ask."""
    with done(Effect.Kind.DIGEST, context):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(10_000))


@exclusive_task(lock="redis")
def redis_nap(context: RunContext, seconds: float) -> int:
    return nap(context, seconds)
