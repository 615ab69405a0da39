"""Manual ticks: runs that no recurrence asked for.

A run that a person or other code asks for goes through the same tick, the same lease and the same audit as a
scheduled one. Its key makes the request idempotent: a double click, or a message that the broker delivers twice,
finds the tick that the first one made.
"""

from __future__ import annotations

import logging
import os
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
from kombu.utils import json

from locks import lock_backends
from locks.base import validate_name
from locks.clock import boottime
from locks.connection import Rows, execute
from scheduler.calls import key_of
from scheduler.conf import conf
from scheduler.delivery import Delivery
from scheduler.error_text import storable
from scheduler.exceptions import LedgerUnavailable
from scheduler.loss import must_stop
from scheduler.statements import dispatch
from scheduler.states import ExecutionState, TickOutcome

if TYPE_CHECKING:
    from scheduler.models import Schedule
    from scheduler.task import ExclusiveTask

logger = logging.getLogger("aegis.manual")

# Seconds after which a manual run that nobody began is missed.
GRACE = 60.0
# Seconds that making a tick waits for its lock name, which beats hold while they store ticks: a message, which is
# gone if this fails, and somebody who looks at a page meanwhile.
LONGEST_WAIT = 30.0
LOOKED_AT = 5.0

# in: name. Asked first: seeding locks the name's row, which callers would then queue up for.
_IN_FORCE = "SELECT alias_in_force FROM aegis_scheduler_lockname WHERE name = %(name)s::text AND alias_in_force <> ''"

# in: name, alias. Seeds the lock name (a trigger seeds its fence row), and puts its strategy in force at once.
_SEED_NAME = """
INSERT INTO aegis_scheduler_lockname (name, alias_wanted, alias_in_force)
VALUES (%(name)s::text, %(alias)s::text, %(alias)s::text)
ON CONFLICT (name) DO UPDATE SET alias_in_force = CASE
    WHEN aegis_scheduler_lockname.alias_in_force = '' THEN aegis_scheduler_lockname.alias_wanted
    ELSE aegis_scheduler_lockname.alias_in_force END
RETURNING alias_in_force
"""

# out: id, fire_time, lock_name, lock_alias, ttl, schedule_name. The FOR SHARE of the lock name keeps its
# strategy from being changed between stamping and storing (see ``LockName``). Nothing, where it was changed since
# ``in_force`` was read, by whose TTL the tick would live.
_MAKE = """
WITH guard AS (
    SELECT name, alias_in_force FROM aegis_scheduler_lockname WHERE name = %(name)s::text FOR SHARE
)
INSERT INTO aegis_scheduler_tick (
    schedule_id, schedule_name, revision, fire_time, manual_key, call_options, task, args, kwargs, queue, priority,
    delivery,
    lock_name, lock_alias, ttl, once_per_tick, grace, overlap, max_attempts, state, outcome, reason, attempt, retries,
    copies, dispatch_at, deadline, missed_count)
SELECT %(schedule)s::bigint, %(schedule_name)s::text, 0,
       coalesce(%(fire_time)s::timestamptz, clock_timestamp()), %(key)s::text, %(call)s::jsonb,
       %(task)s::text, %(args)s::jsonb, %(kwargs)s::jsonb, %(queue)s::text, %(priority)s::int, 'one_worker',
       guard.name, guard.alias_in_force,
       %(ttl)s::float8, true, %(grace)s::float8, %(overlap)s::text, %(max_attempts)s::int, 'planned', '', '', 1, 0, 0,
       clock_timestamp() + make_interval(secs => %(patience)s::float8),
       clock_timestamp() + make_interval(secs => %(grace)s::float8), 0
FROM guard WHERE guard.alias_in_force = %(in_force)s::text
ON CONFLICT (manual_key) DO UPDATE SET manual_key = excluded.manual_key
RETURNING id, fire_time, lock_name, lock_alias, ttl, schedule_name
"""

_MADE = ("tick_id", "fire_time", "lock_name", "alias", "ttl", "schedule")


def this_process() -> str:
    """A name for people: this host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def request_run(
    schedule: Schedule, *, key: str | None = None, overlap: str | None = None, fire_time: datetime | None = None
) -> int:
    """Store a manual tick of a schedule; any beat publishes it within a second. Returns the tick's id.

    ``overlap``: what becomes of it while the name is held, instead of what the schedule says. ``fire_time``: the past
    one that it runs again; now if not given.

    The same key gives the same tick, however often it is asked for. Raises ``LedgerUnavailable``,
    ``InvalidLockBackend`` where the strategy in force has left LOCKS, and ``ValueError`` for what cannot be stored,
    or could not be read again.
    """
    schedule.check_arguments()
    _check_grace(schedule.misfire_grace)
    made = _make(
        name=schedule.lock_id,
        alias=schedule.lock.alias_wanted,
        key=key or f"run:{uuid4()}",
        fire_time=fire_time,
        task=schedule.task,
        args=schedule.args,
        kwargs=schedule.kwargs,
        ttl=schedule.ttl,
        schedule=schedule.pk,
        schedule_name=schedule.name,
        queue=schedule.queue,
        priority=schedule.priority,
        grace=schedule.misfire_grace,
        overlap=overlap or schedule.overlap,
        max_attempts=schedule.max_attempts,
        patience=0.0,
        wait=LOOKED_AT,
    )
    return int(made["tick_id"])


def adopt(
    task: ExclusiveTask,
    *,
    key: str | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    worker: str,
    waits: bool = False,
    queue: str = "",
    call: dict[str, Any] | None = None,
) -> Delivery:
    """Give a delivery that carries no stamp a manual tick of its own, keyed by its task id.

    ``waits``: somebody waits for the answer, so no beat may ever publish the tick. ``call``: what a next attempt
    repeats of the message (``scheduler.calls``). Raises ``LedgerUnavailable`` where the tick could not be stored,
    ``TypeError`` for arguments that Celery's JSON does not know, ``ValueError`` for those the database cannot keep.
    """
    task_id = key or str(uuid4())
    made = _make(
        name=lock_name_of(task),
        alias=task.exclusive_lock,
        key=key_of(task_id),
        call=call or {},
        task=task.name,
        args=list(args),
        kwargs=kwargs,
        queue=queue,
        ttl=task.exclusive_ttl,
        # This delivery is the publication; a beat sends another one only for a further attempt.
        patience=2 * GRACE if waits else conf("REDISPATCH_GRACE"),
    )
    return Delivery(
        # A message without a stamp is always the first attempt: later ones are published from the tick, stamped. A
        # late copy that took the tick's own number would run a retry before its countdown.
        attempt=1,
        guarded=True,
        task_id=task_id,
        worker=worker,
        manual_key=key_of(task_id),
        **made,
    )


def forgo(delivery: Delivery, state: ExecutionState, reason: str) -> bool:
    """Close the manual tick of a call that did not run and whose caller knows it. Logs, never raises.

    False where it was closed or begun before, or where the database did not answer.
    """
    outcome = TickOutcome.PREVENTED if state is ExecutionState.PREVENTED else TickOutcome.BLOCKED
    try:
        rows = execute(
            dispatch.FORGO,
            {
                "tick": delivery.tick_id,
                "attempt": delivery.attempt,
                "outcome": outcome.value,
                "reason": storable(reason, 500),
            },
        )
    except psycopg.Error as trouble:
        logger.warning(
            "tick %s of a call that was refused stays open until its deadline: %s",
            delivery.tick_id, type(trouble).__name__,
        )  # fmt: skip
        return False
    return bool(rows)


def ended_unanswered(delivery: Delivery) -> bool:
    """Whether the tick of a call is over, was begun, and did not come to its end: crashed, cut short or lost.

    Raises ``LedgerUnavailable``.
    """
    try:
        return bool(execute(dispatch.UNANSWERED, {"tick": delivery.tick_id}))
    except psycopg.Error as trouble:
        raise LedgerUnavailable(f"tick {delivery.tick_id} could not be read: {type(trouble).__name__}") from trouble


def lock_name_of(task: ExclusiveTask) -> str:
    """The lock name of a call of ``task``: its own, else its name in small letters. Raises ``ValueError``."""
    if task.exclusive_lock_name:
        return task.exclusive_lock_name
    try:
        return validate_name(task.name.lower())
    except ValueError as refusal:
        raise ValueError(f"task {task.name!r} needs a lock_name of its own. {refusal}") from refusal


def _check_grace(seconds: float) -> None:
    """The deadline is an instant that Python knows; the database goes on to the year 294276."""
    try:
        datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError as refusal:
        raise ValueError(
            f"The grace of {seconds:g} s ends beyond the calendar; give the schedule a shorter one."
        ) from refusal


def _make(*, wait: float = LONGEST_WAIT, **facts: Any) -> dict[str, Any]:
    """Store the tick, or find the one with this key; returns what a delivery is made of."""
    parameters = {
        "schedule": None,
        "schedule_name": "",
        "fire_time": None,
        "queue": "",
        "priority": None,
        "grace": GRACE,
        "overlap": "skip",  # a caller is told at once
        "max_attempts": 1,
        **facts,
        # As Celery's messages spell it, so that a later attempt is given the same values.
        "args": json.dumps(facts["args"]),
        "kwargs": json.dumps(facts["kwargs"]),
        "call": json.dumps(facts.get("call", {})),
    }
    over = boottime() + wait
    try:
        made: Rows = []
        while not made:
            in_force = (execute(_IN_FORCE, parameters) or _patiently(_SEED_NAME, parameters, over))[0][0]
            parameters |= {"in_force": in_force, "ttl": facts["ttl"] or lock_backends[in_force].ttl}
            made = _patiently(_MAKE, parameters, over)
        return dict(zip(_MADE, made[0], strict=True))
    except psycopg.DataError as refusal:
        raise ValueError(
            f"the arguments of {facts['task']} cannot be kept in the database, which knows no NUL character, no "
            f"lone surrogate and no NaN: {type(refusal).__name__}"
        ) from refusal
    except psycopg.Error as trouble:
        raise LedgerUnavailable(
            f"the manual tick of {facts['task']} was not stored: {type(trouble).__name__}"
        ) from trouble


def _patiently(sql: str, parameters: dict[str, Any], over: float) -> Rows:
    """Send again what waited for a row's lock in vain, until ``over`` (boottime) or the process has to end.

    The server gives up each wait after a second, having done nothing.
    """
    while True:
        try:
            return execute(sql, parameters)
        except psycopg.errors.LockNotAvailable:
            if boottime() >= over or must_stop():
                raise
