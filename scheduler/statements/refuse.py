"""REFUSED and BLOCKED: a delivery that did not begin, and what it may say about its tick.

The evidence rule: a refusal is an audit row, and it closes the tick only if this same statement sees another
tick's execution running under the name. Without it ticks vanish in a healthy system. Timeline: worker 0 acquires
for tick n; worker 1 is refused by worker 0's lease *for the same tick* and closes it as prevented; worker 0's
start finds it closed; nobody ran. So a tick's own lease, or the lease of somebody who died before start, is no
evidence: the tick stays open and is published again after 1, 2, 4, 8 seconds, at most 15, until its deadline.
"""

from __future__ import annotations

_SOONER = "least(t.dispatch_at, clock_timestamp() + make_interval(secs => least(power(2, t.copies), 15)))"

# in:  tick, attempt, guarded, name, alias, worker, pid, task_id, acquire_ms
# out: id, state, reason, whether the tick was closed. No row: the tick is gone.
REFUSED = f"""
WITH seen AS (
    SELECT id, state, outcome, attempt FROM aegis_scheduler_tick WHERE id = %(tick)s::bigint FOR NO KEY UPDATE
), holder AS (
    SELECT id FROM aegis_scheduler_execution
    WHERE lock_name = %(name)s::text AND state = 'running' AND tick_id <> %(tick)s::bigint ORDER BY id DESC LIMIT 1
), sibling AS (
    SELECT max(id) AS id FROM aegis_scheduler_execution WHERE tick_id = %(tick)s::bigint AND began
), closing AS (
    SELECT seen.id, holder.id AS holder_id FROM seen, holder
    WHERE seen.state IN ('planned', 'dispatched') AND seen.attempt = 1 AND %(attempt)s::int = 1
), closed AS (
    UPDATE aegis_scheduler_tick t SET state = 'closed', outcome = 'prevented', closed_at = clock_timestamp(),
        reason = 'held by execution ' || closing.holder_id || ' of another tick'
    FROM closing WHERE t.id = closing.id RETURNING t.id
), sooner AS (
    UPDATE aegis_scheduler_tick t SET dispatch_at = {_SOONER}
    FROM seen WHERE t.id = seen.id AND seen.state IN ('planned', 'dispatched') AND NOT EXISTS (SELECT FROM closing)
)
INSERT INTO aegis_scheduler_execution (
    tick_id, attempt, guarded, lock_name, lock_alias, worker, pid, task_id, acquire_ms, began,
    state, holder_id, reason, error, returned_as)
SELECT seen.id, %(attempt)s::int, %(guarded)s::bool, %(name)s::text, %(alias)s::text,
       %(worker)s::text, %(pid)s::int, %(task_id)s::text, %(acquire_ms)s::float8,
       false,
       CASE WHEN seen.state IN ('planned', 'dispatched') THEN 'prevented'
            WHEN seen.outcome IN ('prevented', 'blocked', 'revoked', 'misfired') THEN 'late'
            WHEN %(guarded)s::bool THEN 'duplicate'
            ELSE 'prevented' END,
       coalesce((SELECT id FROM holder), (SELECT id FROM sibling)),
       CASE WHEN seen.state IN ('planned', 'dispatched') THEN 'the name is held by another'
            WHEN seen.outcome IN ('prevented', 'blocked', 'revoked', 'misfired')
                THEN 'the tick was closed without a run: ' || seen.outcome
            WHEN %(guarded)s::bool THEN 'this tick was started by another delivery'
            ELSE 'the name is held by another' END,
       '', ''
FROM seen
RETURNING id, state, reason, EXISTS (SELECT FROM closed)
"""

# in:  tick, attempt, guarded, name, alias, worker, pid, task_id, acquire_ms, reason
# out: id. The tick stays open: one worker that cannot reach the store does not decide for those that can.
BLOCKED = f"""
WITH sooner AS (
    UPDATE aegis_scheduler_tick t SET dispatch_at = {_SOONER}
    WHERE t.id = %(tick)s::bigint AND t.state IN ('planned', 'dispatched')
)
INSERT INTO aegis_scheduler_execution (
    tick_id, attempt, guarded, lock_name, lock_alias, worker, pid, task_id, acquire_ms, began,
    state, reason, error, returned_as)
SELECT id, %(attempt)s::int, %(guarded)s::bool, %(name)s::text, %(alias)s::text,
       %(worker)s::text, %(pid)s::int, %(task_id)s::text, %(acquire_ms)s::float8, false,
       'blocked', %(reason)s::text, '', ''
FROM aegis_scheduler_tick WHERE id = %(tick)s::bigint
RETURNING id
"""
