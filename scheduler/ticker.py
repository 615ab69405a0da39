"""One pass of a beat over the catalog and the ledger.

Publish again what was lost or woken, mint what is due and publish it after the commit, settle what nobody began in
time, and reap. Each step is its own transaction and fails alone: a database error ends that step, never the beat.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import Error as DatabaseError
from django.db import connection

from locks.clock import boottime
from scheduler.conf import conf
from scheduler.failpoints import failpoint
from scheduler.healing import heal
from scheduler.loading import loaded
from scheduler.minting import mint
from scheduler.models import Tick
from scheduler.publisher import Published, publish
from scheduler.reaper import Reaper
from scheduler.statements import dispatch
from scheduler.switching import switch_idle, want_declared

logger = logging.getLogger("aegis.ticker")

# Shortest waits between two passes, seconds.
MOMENT = 0.01
HELD_BY_ANOTHER = 0.1
# Longest wait while a tick waits for the end of a run. The next pass is often that of the next fire time, and a tick
# that is woken only then would take the name from the fresh one, or lose it again, each time.
WAKE_INTERVAL = 0.25
# Seconds between two looks at broken rows.
HEAL_INTERVAL = 60.0


class Ticker:
    """The passes of one process. Any number of processes may run one at the same time."""

    def __init__(self) -> None:
        self.reaper = Reaper()
        self._publishes_from = 0.0  # boottime() until which a broker that has just failed is left alone
        self._heals_from = 0.0  # boottime() until which broken rows are left alone
        self._stopped = False
        self._has_declared = False

    def tick(self) -> float:
        """Do one pass; returns the seconds until the next one is due, at most PASS_INTERVAL."""
        self._step(self._close_switched_off)
        self._step(self._heal)
        self._step(switch_idle)
        # Before the new ticks: one that has waited is not to lose its lock name to a fresh one each time.
        self._step(self._redispatch)
        self._step(self._mint_and_publish)
        self._step(self._settle)
        self._step(self.reaper.reap)
        return self._step(self._until_next) or conf("PASS_INTERVAL")

    def stop(self) -> None:
        """Begin no other step: the next one raises ``SystemExit``, whatever became of the one that is under way.

        A signal handler that raises ``SystemExit`` itself may do so in vain:

            main thread                       database
            BEGIN; a statement                does not answer
            SIGTERM: SystemExit
            rolls back, which fails; Django
            connects anew: OperationalError
            instead, which a step survives
        """
        self._stopped = True

    def tend(self) -> None:
        """All of a pass but the making of new ticks: what is open goes on and comes to its end."""
        self._step(self._redispatch)
        self._step(self._settle)
        self._step(self.reaper.reap)

    def _step(self, step: Callable[[], float | int | None]) -> float | int | None:
        if self._stopped:
            raise SystemExit
        try:
            return step()
        except (DatabaseError, psycopg.Error) as trouble:
            logger.warning("this pass left out %s: %s", step.__name__, type(trouble).__name__)
            connection.close()
        except Exception:  # a fault that one row sets off must not stop what comes after this step
            logger.exception("this pass left out %s", step.__name__)
        return None

    def _mint_and_publish(self) -> None:
        """Until all that is due is stored, or for ON_TIME: what is open waits for its own steps meanwhile."""
        full, over = True, boottime() + conf("ON_TIME")
        while full and boottime() < over and not self._stopped:
            minted = mint()
            if minted.ticks:
                failpoint("after-mint")
            self._publish(minted.ticks)
            full = minted.full

    def _publish(self, ticks: tuple[Tick, ...] | list[Tick]) -> Published:
        if not ticks:
            return Published([])
        if boottime() < self._publishes_from:
            return Published([], broker_failed=True)
        published = publish(ticks)
        failpoint("after-publish")
        if published.broker_failed:
            self._publishes_from = boottime() + conf("BROKER_PAUSE")
        if published.ids:
            _run(dispatch.MARK_DISPATCHED, {"ids": published.ids})
        return published

    def _redispatch(self) -> None:
        """Publish open ticks whose ``dispatch_at`` has passed; it is moved forward first, so that only we do."""
        _run(dispatch.WAKE, {"batch": conf("BATCH")})
        if boottime() < self._publishes_from:
            return
        rows = _run(dispatch.REDISPATCH, {"grace": conf("REDISPATCH_GRACE"), "batch": conf("BATCH")})
        if rows:
            self._publish_again(dict(rows))

    def _publish_again(self, attempts: dict[int, int]) -> None:
        """Publish ticks by their ids, each if it is still at the attempt that was due."""
        found, problems = loaded(Tick.objects.all(), attempts)
        for tick_id, problem in problems.items():
            logger.error(
                "tick %s cannot be read, so it is not published", tick_id, exc_info=problem,
                extra={"action": "unpublishable", "tick": tick_id},
            )  # fmt: skip
        due = [one for one in found.values() if one.attempt == attempts[one.id]]
        published = self._publish(sorted(due, key=lambda one: one.fire_time))
        if published.broker_failed:
            unsent = sorted(attempts.keys() - set(published.ids))
            given = {"ids": unsent, "attempts": [attempts[pk] for pk in unsent], "pause": conf("BROKER_PAUSE")}
            _run(dispatch.UNSENT, given)

    def _settle(self) -> None:
        for tick_id, outcome in _run(dispatch.SETTLE, {"batch": conf("BATCH")}):
            logger.warning(
                "tick %s ended as %s at its deadline", tick_id, outcome,
                extra={"action": outcome, "tick": tick_id},
            )  # fmt: skip

    def _close_switched_off(self) -> None:
        _run(dispatch.SWITCHED_OFF, {"batch": conf("BATCH")})

    def _heal(self) -> None:
        """Look at broken rows at once after a start, when LOCKS may have been mended, and then once a minute."""
        if boottime() >= self._heals_from:
            self._heals_from = boottime() + HEAL_INTERVAL
            self._has_declared = self._has_declared or bool(self._step(want_declared))
            heal()

    def _until_next(self) -> float:
        left, waiting = _run(dispatch.NEXT_DUE, {"on_time": conf("ON_TIME")})[0]
        longest = min(float(conf("PASS_INTERVAL")), WAKE_INTERVAL if waiting else math.inf)
        if left is None:
            return longest
        # Still due after this pass: there was no time for it, or somebody else holds the row, and may go on.
        return min(max(left, MOMENT) if left > 0 else HELD_BY_ANOTHER, longest)


def _run(sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Run one statement in autocommit on Django's connection of this process."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []
