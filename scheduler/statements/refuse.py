"""REFUSED and BLOCKED: a delivery that did not begin, and what it may say about its tick.

The evidence rule: a refusal is an audit row, and it closes the tick only if this same statement sees another
tick's execution running under the name. Without it ticks vanish in a healthy system. Timeline: worker 0 acquires
for tick n; worker 1 is refused by worker 0's lease *for the same tick* and closes it as prevented; worker 0's
start finds it closed; nobody ran. So a tick's own lease, or the lease of somebody who died before start, is no
evidence: the tick stays open and is published again after 1, 2, 4, 8 seconds, at most 15, until its deadline. A copy
of an attempt that is over says nothing of the next one, whose countdown goes on. What comes after the deadline is
late: a beat closes its tick.

Under ``queue_one`` the same evidence lets the tick wait instead, unless one of its schedule waits already. Two that
are refused at the same moment both see an empty place; the unique constraint lets one of them have it, and the
other is sent once more and sees it taken. The end of the run that is waited for may have been stored between the
refusal and this statement's commit, and has then woken nobody: ``dispatch.WAKE`` finds whoever waits for nothing.
"""

from __future__ import annotations

WAITING_ONCE = "aegis_tick_one_waiting"  # the constraint that both of two simultaneous refusals run into

_SOONER = "least(t.dispatch_at, clock_timestamp() + make_interval(secs => least(power(2, least(t.copies, 4)), 15)))"

# in:  tick, attempt, guarded, name, alias, worker, pid, task_id, acquire_ms
# out: id, state, reason, what became of the tick (NULL: it stays open), and where ``skip`` closed it the outcomes of
#      the three ticks of the schedule before it, the latest first. No row: the tick is gone.
REFUSED = f"""
WITH seen AS (
    SELECT id, schedule_id, fire_time, state, outcome, attempt, overlap,
           deadline <= clock_timestamp() AND (state IN ('planned', 'dispatched')
               OR NOT %(guarded)s::bool AND state <> 'waiting') AS overdue
    FROM aegis_scheduler_tick WHERE id = %(tick)s::bigint FOR NO KEY UPDATE
), holder AS (
    SELECT id FROM aegis_scheduler_execution
    WHERE lock_name = %(name)s::text AND state = 'running' AND tick_id <> %(tick)s::bigint ORDER BY id DESC LIMIT 1
), sibling AS (
    SELECT max(id) AS id FROM aegis_scheduler_execution WHERE tick_id = %(tick)s::bigint AND began
), place AS (
    SELECT seen.overlap = 'queue_one' AS wanted, seen.overlap = 'queue_one' AND NOT EXISTS (
        SELECT FROM aegis_scheduler_tick w WHERE w.schedule_id = seen.schedule_id AND w.state = 'waiting') AS free
    FROM seen
), verdict AS (
    SELECT seen.id, holder.id AS holder_id, place.wanted,
           CASE WHEN place.free THEN 'waiting' WHEN seen.attempt = 1 THEN 'closed' END AS became
    FROM seen, holder, place
    WHERE seen.state IN ('planned', 'dispatched') AND NOT seen.overdue AND seen.attempt = %(attempt)s::int
), moved AS (
    UPDATE aegis_scheduler_tick t SET state = v.became,
        outcome = CASE v.became WHEN 'closed' THEN 'prevented' ELSE '' END,
        closed_at = CASE v.became WHEN 'closed' THEN clock_timestamp() END,
        reason = CASE WHEN v.became = 'waiting' THEN 'waits for the end of execution ' || v.holder_id
                      WHEN v.wanted THEN 'queue full: another tick of the schedule waits already'
                      ELSE 'held by execution ' || v.holder_id || ' of another tick' END
    FROM verdict v WHERE t.id = v.id AND v.became IS NOT NULL RETURNING t.id, t.state
), sooner AS (
    UPDATE aegis_scheduler_tick t SET dispatch_at = {_SOONER}
    FROM seen WHERE t.id = seen.id AND seen.state IN ('planned', 'dispatched') AND t.attempt = %(attempt)s::int
        AND NOT EXISTS (SELECT FROM verdict WHERE became IS NOT NULL)
)
INSERT INTO aegis_scheduler_execution (
    tick_id, attempt, guarded, lock_name, lock_alias, worker, pid, task_id, acquire_ms, began,
    state, holder_id, reason, error, returned_as)
SELECT seen.id, %(attempt)s::int, %(guarded)s::bool, %(name)s::text, %(alias)s::text,
       %(worker)s::text, %(pid)s::int, %(task_id)s::text, %(acquire_ms)s::float8,
       false,
       CASE WHEN seen.overdue THEN 'late'
            WHEN seen.state IN ('planned', 'dispatched', 'waiting') THEN 'prevented'
            WHEN seen.outcome IN ('prevented', 'blocked', 'revoked', 'misfired') THEN 'late'
            WHEN %(guarded)s::bool THEN 'duplicate'
            ELSE 'prevented' END,
       coalesce((SELECT id FROM holder), (SELECT id FROM sibling)),
       CASE WHEN seen.overdue THEN 'the deadline of the tick has passed'
            WHEN seen.state IN ('planned', 'dispatched', 'waiting') THEN 'the name is held by another'
            WHEN seen.outcome IN ('prevented', 'blocked', 'revoked', 'misfired')
                THEN 'the tick was closed without a run: ' || seen.outcome
            WHEN %(guarded)s::bool THEN 'this tick was started by another delivery'
            ELSE 'the name is held by another' END,
       '', ''
FROM seen
RETURNING id, state, reason, (SELECT moved.state FROM moved), (
    SELECT array_agg(p.outcome::text) FROM moved, seen, LATERAL (
        SELECT outcome FROM aegis_scheduler_tick b
        WHERE b.schedule_id = seen.schedule_id AND b.manual_key IS NULL AND b.fire_time < seen.fire_time
        ORDER BY b.fire_time DESC LIMIT 3) p
    WHERE moved.state = 'closed' AND seen.overlap = 'skip')
"""

# in:  tick, attempt, guarded, name, alias, worker, pid, task_id, acquire_ms, reason
# out: id. The tick stays open: one worker that cannot reach the store does not decide for those that can.
BLOCKED = f"""
WITH sooner AS (
    UPDATE aegis_scheduler_tick t SET dispatch_at = {_SOONER}
    WHERE t.id = %(tick)s::bigint AND t.state IN ('planned', 'dispatched') AND t.attempt = %(attempt)s::int
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
