"""What a worker does for Aegis unasked: tell wrong settings, hear the broadcast, show presence, note revocations."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from celery.signals import celeryd_after_setup, task_revoked, worker_ready, worker_shutdown

from locks.connection import execute
from scheduler.at_start import log_errors
from scheduler.calls import key_of
from scheduler.conf import conf
from scheduler.delivery import HEADER
from scheduler.loss.main_thread import SOFT_LIMIT
from scheduler.pools import is_green
from scheduler.presence import Presence, Worker
from scheduler.statements import dispatch

logger = logging.getLogger("aegis.worker")

_presence: list[Presence] = []


def connect() -> None:
    """Connect the receivers; called once by the app's ``ready()``."""
    celeryd_after_setup.connect(tell_errors, dispatch_uid="aegis.errors")
    celeryd_after_setup.connect(listen_to_broadcast, dispatch_uid="aegis.broadcast")
    celeryd_after_setup.connect(warn_of_greenlets, dispatch_uid="aegis.greenlets")
    worker_ready.connect(arrive, dispatch_uid="aegis.arrive")
    worker_shutdown.connect(leave, dispatch_uid="aegis.leave")
    task_revoked.connect(note_revoked, dispatch_uid="aegis.revoked")


def tell_errors(sender: str, **kwargs: Any) -> None:
    """What ``manage.py check`` would refuse, once in the log: Celery runs the checks and says nothing of them."""
    log_errors(logger)


def listen_to_broadcast(sender: str, instance: Any, **kwargs: Any) -> None:
    """Every worker also reads the queue of deliveries to every worker, unless the project has switched it off."""
    if conf("BROADCAST_QUEUE") is None:
        return
    from scheduler.publisher import broadcast_queue  # its models need the apps to be ready

    instance.app.amqp.queues.select_add(broadcast_queue())


def arrive(sender: Any, **kwargs: Any) -> None:
    def describe() -> Worker:
        pool = type(sender.pool).__module__.rpartition(".")[2]
        # A broadcast queue has a name of its own in each process; its alias is what senders know.
        queues = {queue.alias or queue.name for queue in sender.app.amqp.queues.consume_from.values()}
        return Worker(pool=pool, concurrency=sender.controller.concurrency, queues=tuple(sorted(queues)))

    presence = Presence("worker", sender.hostname, describe)
    presence.stamp_in_background()
    _presence.append(presence)


def leave(sender: Any, **kwargs: Any) -> None:
    while _presence:
        _presence.pop().leave()


def warn_of_greenlets(sender: str, instance: Any, **kwargs: Any) -> None:
    """In a pool of greenlets a body that computes without a pause stops the renewals of all of them."""
    if is_green(getattr(instance.pool_cls, "__module__", "")):
        logger.warning(
            "%s runs greenlets: a body that computes for longer than its TTL without giving way loses its lease, "
            "which is noticed when it gives way. Use a TTL above the longest such stretch, or a prefork pool.",
            sender, extra={"action": "greenlets"},
        )  # fmt: skip


def note_revoked(
    sender: Any, request: Any, terminated: bool, expired: bool, signum: Any = None, **kwargs: Any
) -> None:
    """A revoked message closes its tick, which would otherwise be published again.

    Expired means the deadline passed, which the ticker settles. Terminated means that a body was inside: there is no
    further attempt. ``SIGUSR1`` is Celery's soft limit, which a body may survive: how it ends says what became of it.
    """
    if expired or (terminated and signum == SOFT_LIMIT):
        return
    stamp = (getattr(request, "headers", None) or {}).get(HEADER) or getattr(request, HEADER, None)
    parameters = {
        "tick": stamp["tick"] if stamp else None,
        "key": None if stamp else key_of(request.id),
        "attempt": stamp["attempt"] if stamp else 1,
        "reason": "revoked while its body ran" if terminated else "the message was revoked",
    }
    if stamp is None and not terminated:  # it has made no tick yet
        return
    try:
        execute(dispatch.TERMINATED if terminated else dispatch.REVOKE, parameters)
    except psycopg.Error as trouble:
        logger.warning(
            "revoked %s of %s stays open: %s", request.id, getattr(sender, "name", sender), type(trouble).__name__
        )
