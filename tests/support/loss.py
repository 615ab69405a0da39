"""Losing a lease on purpose, and overtaking its holder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections

from locks import connection, lock_backends
from scheduler.context import RunContext
from scheduler.models import Schedule
from scheduler.runner import Outcome, run
from scheduler.states import ExecutionState
from tests.support.engine import delivery_of, make_tick
from tests.support.waiting import wait_until

# Strategies that keep two holders apart; a new one joins by itself.
EXCLUSIVE = [alias for alias in lock_backends.aliases() if lock_backends[alias].exclusive]


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What ``call`` returns in a thread with connections of its own, as in another worker."""
    answers: list[Any] = []

    def target() -> None:
        try:
            answers.append(call())
        finally:
            connections.close_all()

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(timeout=60)
    assert answers, "the other worker did not come back"
    return answers[0]


def take_lease_away(alias: str, name: str) -> None:
    """End the lease of whoever holds the name, as an operator would; the holder is not told."""
    held = lock_backends[alias].inspect(name)
    assert held is not None and held.lease_id is not None
    lock_backends[alias].force_release(name, lease_id=held.lease_id)


def lose_lease(context: RunContext) -> None:
    """End the lease of a body, and let its keep-alive ask within half a second, however long the ttl is."""
    take_lease_away(context.lock_alias, context.lock_name)
    context.kept.next_renewal = context.kept.backend.clock()


def start_later(schedule: Schedule, body: Callable[[RunContext], Any] = lambda context: None) -> Outcome:
    """Run another tick of the schedule to its end in another worker. Its lease must be free or become so."""

    def executed() -> Outcome | None:
        outcome: Outcome = in_a_thread(lambda: run(delivery_of(make_tick(schedule)), body))
        return outcome if outcome.state is ExecutionState.EXECUTED else None

    outcome = wait_until(executed, timeout=30, message="a later execution ran")
    assert outcome is not None
    return outcome


def overtake(schedule: Schedule, body: Callable[[RunContext], Any] = lambda context: None) -> Outcome:
    """The holder loses its lease, and a later execution of the schedule runs to its end."""
    alias = schedule.lock.alias_in_force or schedule.lock.alias_wanted
    take_lease_away(alias, schedule.lock_id)
    return start_later(schedule, body)


def lock_waiters() -> int:
    """How many sessions of this package wait for a lock in the database."""
    rows = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'aegis%%' AND wait_event_type = 'Lock'",
        {},
    )
    return int(rows[0][0])
