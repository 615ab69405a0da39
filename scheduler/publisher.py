"""Publish ticks: one message each, held producer, bounded time-outs, no retries of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery import current_app
from celery.result import denied_join_result
from django.core.exceptions import ImproperlyConfigured
from kombu.common import Broadcast
from kombu.exceptions import OperationalError
from redis.exceptions import (
    ClusterDownError,
    DataError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from scheduler import calls
from scheduler.conf import NO_BROADCAST, conf
from scheduler.delivery import HEADER, stamp, task_id_of
from scheduler.models import Tick
from scheduler.models.tick import Delivery

logger = logging.getLogger("aegis.publisher")

# Of a task's declaration. Celery takes them over where it sends a task by name, but before version 5.7 it does not.
OWN = ("queue", "exchange", "routing_key", "priority", "compression", "delivery_mode", "time_limit",
       "soft_time_limit", "ignore_result")  # fmt: skip

# Answers of a Redis that refuses everybody's messages.
OF_SERVER = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError)
OF_SERVER_WORDS = ("MISCONF", "NOREPLICAS", "BUSY ")

UNREAD = 60.0  # seconds that RabbitMQ keeps a worker's broadcast queue which nobody reads


@dataclass(frozen=True, slots=True)
class Published:
    """The ids of the ticks that were sent, and whether the broker failed on the way."""

    ids: list[int]
    broker_failed: bool = False


def publish(ticks: Sequence[Tick]) -> Published:
    """Send the message of each tick.

    The broker's first failure ends the publishing of this pass: a broker that is down must not hold up the storing
    of ticks. A tick that cannot be made into a message (a queue that the project does not define) holds up no
    other. What was not sent stays open and any beat tries again when its ``dispatch_at`` has passed.

    The result backend is not asked for anything. Celery subscribes to the result of what it sends, and where that
    backend is down it would hold up the pass for twenty seconds a message; a beat waits for no result.
    """
    sent: list[int] = []
    if not ticks:
        return Published(sent)
    try:
        with (
            denied_join_result(),
            current_app.producer_pool.acquire(block=True, timeout=conf("PUBLISH_TIMEOUT")) as producer,
        ):
            _connect(producer.connection)
            for tick in ticks:
                if _sends(tick, producer):
                    sent.append(tick.id)  # noqa: PERF401 - those before a failure count
    except _broker_errors() as trouble:
        logger.warning(
            "published %d of %d ticks, the broker failed: %s",
            len(sent), len(ticks), type(trouble.__cause__ or trouble).__name__,
            extra={"action": "publish_failed"},
        )  # fmt: skip
        return Published(sent, broker_failed=True)
    return Published(sent)


def _connect(connection: Any) -> None:
    """Once to each of its servers, where it is not open. Raises ``OperationalError``.

    The driver of RabbitMQ would go on trying for several seconds, and a login that is refused would look like a
    fault of each message. No time-out for all of them: the first that swallows packets would use it up.
    """
    try:
        connection.ensure_connection(max_retries=max(0, len(connection.alt) - 1), interval_start=0)
    except Exception as trouble:  # whatever a driver raises
        raise OperationalError("no connection") from trouble.__cause__ or trouble


def _sends(tick: Tick, producer: Any) -> bool:
    try:
        _send(tick, producer)
    except Exception as trouble:
        if is_the_brokers(trouble):
            raise
        logger.exception(
            "tick %s of %s cannot be published", tick.id, tick.schedule_name or tick.task,
            extra={"action": "unpublishable", "tick": tick.id},
        )  # fmt: skip
        return False
    return True


def is_the_brokers(trouble: Exception) -> bool:
    """Whether it is a failure of the broker, and no fault of this one message, which harms no other.

    The Redis transport takes each KeyError for a broken connection: of a queue that does not exist, of a function in
    ``task_routes``, of an unknown compression, which kombu wraps. Redis also refuses a single queue whose key has
    another type, or which this user may not write to; but what it refuses to everybody is its own failure.
    """
    cause = trouble.__cause__ or trouble
    if isinstance(cause, LookupError):
        return False
    if isinstance(cause, (DataError, ResponseError)):
        return isinstance(cause, OF_SERVER) or str(cause).startswith(OF_SERVER_WORDS)
    return isinstance(trouble, _broker_errors())


def _broker_errors() -> tuple[type[BaseException], ...]:
    """What is raised when the broker cannot be reached: by kombu, by the system, by the broker's driver."""
    connection = current_app.connection_for_write()
    drivers = (*connection.recoverable_connection_errors, *connection.recoverable_channel_errors)
    return (OperationalError, OSError, *drivers)


def _send(tick: Tick, producer: Any) -> None:
    # A call keeps the id under which somebody waits for its result. So it must not expire in Celery either: a worker
    # would take the next attempt for a revoked one. Others expire there, where a backlog costs least.
    call = calls.task_id_of(tick.manual_key)
    current_app.send_task(
        tick.task,
        args=tick.args,
        kwargs=tick.kwargs,
        task_id=call or task_id_of(tick),
        headers=_headers(tick),
        expires=None if call else tick.deadline,
        retries=tick.retries,
        serializer="json",
        producer=producer,
        retry=False,
        **{**_own(tick.task), **_route(tick), **tick.call_options},
    )


def _headers(tick: Tick) -> dict[str, Any]:
    """The stamp; and the name under which beat announces its own rows, which result backends show."""
    named = {"periodic_task_name": tick.schedule_name} if tick.schedule_name else {}
    return {HEADER: stamp(tick), **named}


def _own(task: str) -> dict[str, Any]:
    """The options that the task's declaration names, or Celery's settings for it."""
    declared = current_app.tasks.get(task)
    values = {option: getattr(declared, option, None) for option in OWN}
    return {option: value for option, value in values.items() if value is not None}


def _route(tick: Tick) -> dict[str, Any]:
    """Where the message goes, if the tick says so, and how urgent it is; else the task's own options say it.

    Broadcast needs the queue as an object *and* its exchange declared: a name that this process has not set up is
    taken for an ordinary queue, and an exchange that it has not declared for a direct one; either way nobody reads
    the message and nobody says a word. The queue itself is not declared: it would be one more that nobody reads.
    """
    route: dict[str, Any] = {}
    if tick.priority is not None:
        route["priority"] = tick.priority
    if tick.delivery == Delivery.EVERY_WORKER:
        queue = broadcast_queue()
        route |= {"queue": queue, "declare": [queue.exchange], "exchange": None, "routing_key": None}
    elif tick.queue:
        route |= {"queue": tick.queue, "exchange": None, "routing_key": None}
    return route


def broadcast_queue() -> Broadcast:
    """The queue of deliveries to every worker: each process that reads it gets one of its own.

    The routing key is named because Redis matches it even for a fanout exchange; left out, it would be the name
    of the project's default queue. RabbitMQ keeps the queue of a worker that ended while the broker was down, and
    would fill it for ever: it is deleted when it has had no reader for a while.
    Raises ``ImproperlyConfigured`` where no worker listens.
    """
    name = conf("BROADCAST_QUEUE")
    if name is None:
        raise ImproperlyConfigured(NO_BROADCAST)
    return Broadcast(name, routing_key=name, expires=UNREAD)
