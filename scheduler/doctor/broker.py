"""The broker: does it answer, and does it deliver a message a second time while the first copy still runs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from celery import current_app

from locks import Finding
from locks.findings import could_not_look, fail, ok, warn
from scheduler import visibility
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.report import named
from scheduler.visibility import Visibility

TOPIC = "broker"
PATIENCE = 2.0  # seconds for a connection
CONSUMER_TIMEOUT = 1800.0  # seconds: RabbitMQ's own default
AMQP = ("amqp", "amqps", "pyamqp", "librabbitmq")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """``silence``: why it does not answer. ``cancels``: whether a worker that loses it ends its late bodies."""

    transport: str
    server: str
    silence: str | None = None
    visibility: Visibility = field(default_factory=lambda: Visibility(value=None))
    cancels: bool = True


def ask() -> BrokerFacts:
    """Ask for a connection. Raises nothing of the broker."""
    connection = current_app.connection_for_read()
    silence = None
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=PATIENCE)
    except Exception as trouble:  # whatever a transport raises
        silence = type(trouble.__cause__ or trouble).__name__
    finally:
        connection.release()
    return BrokerFacts(
        transport=connection.transport_cls if isinstance(connection.transport_cls, str) else "another transport",
        server=f"{connection.hostname or 'localhost'}:{connection.port or connection.default_port or ''}".rstrip(":"),
        silence=silence,
        visibility=visibility.effective(),
        cancels=bool(current_app.conf.worker_cancel_long_running_tasks_on_connection_loss),
    )


def judge(facts: BrokerFacts, scheduled: Sequence[Scheduled] | None) -> Iterator[Finding]:
    """``scheduled``: ``None`` where the catalog could not be read; then only what needs none is said."""
    yield _answers(facts)
    if scheduled is None:
        yield could_not_look(
            TOPIC, "the catalog, to compare the visibility time-out "
            f"({facts.visibility.value if facts.visibility.value is not None else 'none'}) with the longest run",
            "Bring the database back, then run the doctor again.",
        )  # fmt: skip
        return
    late = [one for one in scheduled if one.acks_late]
    yield _acks(scheduled, late)
    if facts.visibility.seconds is not None:
        yield _redelivers(facts.visibility, facts.visibility.seconds, scheduled)
    if late and not facts.cancels:
        yield warn(
            TOPIC, "worker_cancel_long_running_tasks_on_connection_loss is off and these ack late: "
            f"{named(one.name for one in late)}: a lost connection delivers a copy while the body goes on",
            "Set it to True, or let these tasks ack early.",
        )  # fmt: skip
    if facts.transport in AMQP:
        yield _consumer_timeout(late)


def _answers(facts: BrokerFacts) -> Finding:
    where = f"{facts.transport} at {facts.server}"
    if facts.silence is not None:
        return fail(
            TOPIC, f"{where}: no connection ({facts.silence}); ticks are stored and nobody hears of them",
            "Start the broker, or correct the broker's URL.",
        )  # fmt: skip
    return ok(TOPIC, f"{where} answers")


def _acks(scheduled: Sequence[Scheduled], late: Sequence[Scheduled]) -> Finding:
    """Late acks need the tick guard: each copy that comes again is a second body otherwise."""
    bare = [one.name for one in late if not one.guarded and not one.broadcast]
    said = f"{len(scheduled) - len(late)} schedules ack early, {len(late)} late"
    if bare:
        return warn(
            TOPIC, f"{said}; without the tick guard: {named(bare)}: a message that comes again runs again",
            "Switch the tick guard on, or let the task ack early.",
        )  # fmt: skip
    return ok(TOPIC, said)


def _redelivers(found: Visibility, seconds: float, scheduled: Sequence[Scheduled]) -> Finding:
    """A message is unacknowledged while it waits behind a running body (early acks), or runs itself (late acks)."""
    source = visibility.right_place() if found.given else "the default"
    said = f"visibility time-out {seconds:g} s ({source})"
    if not scheduled:
        return ok(TOPIC, f"{said}; nothing is scheduled")
    longest = max(scheduled, key=_span)
    what = f"{longest.name} may take {_span(longest):g} s ({_why(longest)})"
    if _span(longest) < seconds:
        return ok(TOPIC, f"{said}; {what}")
    bare = [one.name for one in scheduled if one.acks_late and not one.guarded and _span(one) >= seconds]
    step = f"Set {visibility.right_place()} above {_span(longest):g} s, and on all that share the broker."
    if bare:
        return fail(TOPIC, f"{said}; {what}; {named(bare)} would run twice, late acks and no tick guard", step)
    return warn(TOPIC, f"{said}; {what}: its message is delivered again meanwhile, and refused as duplicate", step)


def _span(one: Scheduled) -> float:
    return max(one.longest, one.ttl)


def _why(one: Scheduled) -> str:
    if _span(one) == one.time_limit:
        return "hard time limit"
    return "99 of 100 runs of 7 days" if _span(one) == one.observed else "TTL"


def _consumer_timeout(late: Sequence[Scheduled]) -> Finding:
    """RabbitMQ closes the channel of a message that is not acknowledged in time, and delivers it again.

    Celery takes the closing for a fault that it cannot mend: the worker takes no more messages, lets its bodies end,
    and ends itself with status 1.
    """
    long = [one for one in late if _span(one) >= CONSUMER_TIMEOUT or not one.time_limit]
    if not long:
        return ok(
            TOPIC, f"no late ack takes RabbitMQ's consumer_timeout of {CONSUMER_TIMEOUT:g} s, if it is the default"
        )
    return warn(
        TOPIC, f"{named(one.name for one in long)} ack late and may take longer than RabbitMQ's consumer_timeout, "
        f"{CONSUMER_TIMEOUT:g} s unless changed: it delivers a copy, and the worker ends when the body has ended",
        "Raise consumer_timeout in rabbitmq.conf, give the tasks a hard time limit, or ack early.",
    )  # fmt: skip
