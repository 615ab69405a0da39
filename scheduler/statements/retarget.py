"""RETARGET: another strategy for a lock name at once, although something may be open. An operator's exception.

Two statements of one transaction: the second begins when the lock of the name's row is held, so that it sees every
tick that a beat stored under the old strategy before. A message of the old strategy that is still on its way finds
a tick with another alias and is refused at its start; the tick is published again by the next pass. What overlaps
may overlap only with bodies that are inside already.
"""

from __future__ import annotations

from scheduler.statements.finish import WOKEN

# in: name, alias
NAME = """
UPDATE aegis_scheduler_lockname SET alias_wanted = %(alias)s::text, alias_in_force = %(alias)s::text
WHERE name = %(name)s::text
"""

_STAMP = """lock_alias = %(alias)s::text,
    ttl = CASE WHEN w.schedule_id IS NULL THEN w.ttl ELSE coalesce(
        (SELECT s.ttl FROM aegis_scheduler_schedule s WHERE s.id = w.schedule_id), %(ttl)s::float8) END"""

# A retry that counts down goes on counting: it is not due because its strategy is another.
_COUNTS_DOWN = "w.state = 'dispatched' AND w.attempt > 1 AND w.copies = 0"

# in: name, alias, ttl (of the strategy, seconds). out: how many ticks are open, and how many of them have begun.
TICKS = f"""
WITH stamped AS (
    UPDATE aegis_scheduler_tick w SET {_STAMP}
    WHERE w.lock_name = %(name)s::text AND (w.state IN ('planned', 'started') OR {_COUNTS_DOWN}) RETURNING w.state
), again AS (
    UPDATE aegis_scheduler_tick w SET {WOKEN}, {_STAMP}
    WHERE w.lock_name = %(name)s::text AND w.state IN ('dispatched', 'waiting') AND NOT ({_COUNTS_DOWN})
    RETURNING w.state
)
SELECT count(*), count(*) FILTER (WHERE state = 'started')
FROM (SELECT state FROM stamped UNION ALL SELECT state FROM again) s
"""
