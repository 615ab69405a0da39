"""The reaper: running executions whose process has fallen silent become abandoned, and are tried again if allowed.

Five rules. R1: silence is *observed*: the time between this process's own successful passes during which a heartbeat
did not change, on its own clock; a gap counts for two intervals at most. No database clock and no age at first sight:
after an outage or a clock step every heartbeat looks old, and a rule that trusts its age abandons healthy runs by the
dozen. R2: an execution is abandoned only once its lease is no longer shown by the store; still held, or no answer,
means leave it; but where an operator has put another strategy in force at once, and so accepted an overlap, a store
that cannot be asked any more is waited for no longer than the tick's TTL beside the grace. R3: the reaper never
releases a lease. R4: the UPDATE is guarded by id, state and the heartbeat last seen. R5: a body that comes back later
is recorded beside the terminal state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from locks import InvalidLockBackend, LockUnavailable, lock_backends
from locks.clock import boottime
from locks.connection import execute
from scheduler.conf import conf
from scheduler.statements import finish

logger = logging.getLogger("aegis.reaper")

# out: the last is the tick's ttl, where the strategy of the execution was replaced at once: else it is in force.
_RUNNING = """
SELECT e.id, e.heartbeat_at, e.lock_name, e.lock_alias, e.lease_id,
       CASE WHEN n.alias_in_force NOT IN ('', e.lock_alias) THEN t.ttl END
FROM aegis_scheduler_execution e JOIN aegis_scheduler_tick t ON t.id = e.tick_id
LEFT JOIN aegis_scheduler_lockname n ON n.name = e.lock_name
WHERE e.state = 'running'
"""


@dataclass(slots=True)
class Watched:
    """One running execution as this process has seen it."""

    heartbeat: datetime
    silence: float = 0.0


class Reaper:
    """Keeps what one process has observed; call ``reap()`` once a pass."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self._watched: dict[int, Watched] = {}
        self._last_pass: float | None = None
        self._mute: set[str] = set()  # strategies whose store did not answer in this pass

    def reap(self) -> int:
        """Look at every running execution; returns how many were abandoned. Raises ``psycopg.Error``."""
        rows = execute(_RUNNING)
        gap = self._gap()
        watched = {row[0]: self._observe(row[0], row[1], gap) for row in rows}
        self._watched = watched
        silent = [row for row in rows if watched[row[0]].silence >= conf("SILENCE_GRACE")]
        self._mute.clear()
        return sum(self._abandon(*row) for row in silent)

    def _gap(self) -> float:
        now = self._clock()
        gap = 0.0 if self._last_pass is None else min(now - self._last_pass, 2 * conf("PASS_INTERVAL"))
        self._last_pass = now
        return gap

    def _observe(self, execution_id: int, heartbeat: datetime, gap: float) -> Watched:
        before = self._watched.get(execution_id)
        if before is None or before.heartbeat != heartbeat:
            return Watched(heartbeat)
        return Watched(heartbeat, before.silence + gap)

    def _abandon(
        self, execution_id: int, heartbeat: datetime, name: str, alias: str, lease_id: Any, replaced_ttl: float | None
    ) -> int:
        silence = self._watched[execution_id].silence
        held = self._held(name, alias, lease_id)
        waits = replaced_ttl is None or silence < replaced_ttl + conf("SILENCE_GRACE")
        if held or (held is None and waits):
            return 0
        lease = "the lease is gone" if held is False else f"strategy {alias!r} was replaced and cannot be asked"
        reason = f"no heartbeat for {silence:.0f} s and {lease}"
        rows = execute(finish.ABANDON, {"id": execution_id, "heartbeat": heartbeat, "reason": reason})
        for (tick_id,) in rows:
            logger.warning(
                "execution %s of tick %s abandoned: %s", execution_id, tick_id, reason,
                extra={"action": "abandoned", "execution": execution_id, "tick": tick_id},
            )  # fmt: skip
        return len(rows)

    def _held(self, name: str, alias: str, lease_id: Any) -> bool | None:
        """Whether the store shows this lease; ``None``: it does not say, which is never "gone".

        A store that does not answer is asked once a pass: each time-out holds up the whole beat.
        """
        if alias in self._mute:
            return None
        try:
            backend = lock_backends[alias]
            if not backend.exclusive:
                return False
            info = backend.inspect(name)
        except (LockUnavailable, InvalidLockBackend) as unknown:
            logger.warning("cannot tell whether %s is still held under %s: %s", name, alias, unknown)
            self._mute.add(alias)
            return None
        except Exception:  # one lease that a backend cannot make out must not keep all others from being reaped
            logger.exception("cannot tell whether %s is still held under %s", name, alias)
            return None
        if info is None:
            return False
        if info.lease_id is None:  # held by somebody who cannot be told from this lease
            return True
        if info.lease_id != lease_id:
            return False
        return info.expires_in is None or info.expires_in > 0
