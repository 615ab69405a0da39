"""What a worker does for Aegis without being configured: listen to the broadcast, show presence, note revocations."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from celery.signals import celeryd_after_setup, task_revoked, worker_ready, worker_shutdown

from locks.connection import execute
from scheduler.delivery import HEADER
from scheduler.presence import Presence, Worker
from scheduler.statements import dispatch

logger = logging.getLogger("aegis.worker")

_presence: list[Presence] = []


def connect() -> None:
    """Connect the receivers; called once by the app's ``ready()``."""
    celeryd_after_setup.connect(listen_to_broadcast, dispatch_uid="aegis.broadcast")
    worker_ready.connect(arrive, dispatch_uid="aegis.arrive")
    worker_shutdown.connect(leave, dispatch_uid="aegis.leave")
    task_revoked.connect(note_revoked, dispatch_uid="aegis.revoked")


def listen_to_broadcast(sender: str, instance: Any, **kwargs: Any) -> None:
    """Every worker also reads the queue of deliveries to every worker."""
    from scheduler.publisher import broadcast_queue  # its models need the apps to be ready

    instance.app.amqp.queues.select_add(broadcast_queue())


def arrive(sender: Any, **kwargs: Any) -> None:
    def describe() -> Worker:
        pool = type(sender.pool).__module__.rpartition(".")[2]
        queues = tuple(sorted(sender.app.amqp.queues.consume_from))
        return Worker(pool=pool, concurrency=sender.controller.concurrency, queues=queues)

    presence = Presence("worker", sender.hostname, describe)
    presence.stamp_in_background()
    _presence.append(presence)


def leave(sender: Any, **kwargs: Any) -> None:
    while _presence:
        _presence.pop().leave()


def note_revoked(sender: Any, request: Any, terminated: bool, expired: bool, **kwargs: Any) -> None:
    """A revoked message closes its tick, which would otherwise be published again.

    Expired means the deadline passed, which the ticker settles; terminated means that a body was inside, which
    the reaper settles.
    """
    stamp = (getattr(request, "headers", None) or {}).get(HEADER) or getattr(request, HEADER, None)
    if stamp is None or expired or terminated:
        return
    try:
        execute(
            dispatch.REVOKE,
            {"tick": stamp["tick"], "attempt": stamp["attempt"], "reason": "the message was revoked"},
        )
    except psycopg.Error as trouble:
        logger.warning("revoked tick %s stays open until its deadline: %s", stamp["tick"], type(trouble).__name__)
