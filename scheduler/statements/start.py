"""START: the only commit point of a run.

One statement claims the tick, raises the fence of the lock name and inserts the execution. The race that it
closes, as a timeline: two workers hold a copy of one tick; the first starts it; the second's UPDATE waits for the
first's row lock, finds ``started`` instead of ``planned | dispatched | waiting``, and its row says ``duplicate``.

A start that waits in ``door`` waits for the guarded transactions of the former holder: after it, the former
holder's token is no longer the fence's, so what it has not committed by now it never will.

A message that comes after the deadline starts nothing, also where no beat has closed its tick yet, and where without
the guard the tick has started elsewhere. A waiting tick has no deadline.

What it says of a tick that it could not claim is read before it waits. Where that tick was still to be had,
somebody has taken or closed it meanwhile, and nothing is stored: sent again, it sees who.

Sent once more after a lost reply, it changes nothing: the fence knows the lease, and so do the executions.
"""

from __future__ import annotations

# in:  tick, attempt, guarded, name, alias, grant (bigint or NULL), numbering, lease (uuid), worker, pid, task_id,
#      acquire_ms
# out: id, state, token, started_at, reason. No row: sent before under this lease id (READ tells), the tick was taken
#      or closed while this waited (send it again), or the tick or the fence row is missing.
_START = """
WITH gate AS (
    SELECT t.id, t.state, t.outcome,
           t.state IN ('planned', 'dispatched', 'waiting') AND t.lock_alias <> %(alias)s::text AS retargeted,
           t.deadline <= clock_timestamp() AND (t.state IN ('planned', 'dispatched')
               OR NOT %(guarded)s::bool AND t.state <> 'waiting') AS overdue,
           %(guarded)s::bool AND t.attempt = %(attempt)s::int AND t.lock_alias = %(alias)s::text
               AND t.state IN ('planned', 'dispatched', 'waiting') AS claimable,
           t.manual_key IS NOT NULL OR coalesce(
               s.enabled AND (s.paused_at IS NULL OR s.paused_until <= clock_timestamp()), false) AS open
    FROM aegis_scheduler_tick t LEFT JOIN aegis_scheduler_schedule s ON s.id = t.schedule_id
    WHERE t.id = %(tick)s::bigint
), door AS (
    {door}
), claim AS (
    UPDATE aegis_scheduler_tick t
    SET state = CASE WHEN t.state IN ('planned', 'dispatched', 'waiting') THEN 'started' ELSE t.state END,
        reason = CASE WHEN t.state = 'waiting' THEN '' ELSE t.reason END,
        dispatched_at = coalesce(t.dispatched_at, clock_timestamp())
    FROM gate, door
    WHERE t.id = gate.id AND gate.open AND door.in_order AND NOT gate.overdue
      AND CASE WHEN %(guarded)s::bool
               THEN t.attempt = %(attempt)s::int AND t.state IN ('planned', 'dispatched', 'waiting')
                    AND t.lock_alias = %(alias)s::text
               ELSE (t.state IN ('planned', 'dispatched', 'waiting', 'started')
                     OR t.outcome IN ('executed', 'failed', 'lost', 'abandoned'))
                    -- a late copy must not run under a strategy that no longer guards the name
                    AND EXISTS (SELECT FROM aegis_scheduler_lockname n
                                WHERE n.name = t.lock_name AND n.alias_in_force = %(alias)s::text) END
    RETURNING t.id
), raised AS (
    {raised}
)
INSERT INTO aegis_scheduler_execution (
    tick_id, attempt, guarded, lock_name, lock_alias, lease_id, token, worker, pid, task_id, acquire_ms,
    state, began, started_at, heartbeat_at, holder_id, reason, error, returned_as)
SELECT gate.id, %(attempt)s::int, %(guarded)s::bool, %(name)s::text, %(alias)s::text, %(lease)s::uuid,
       raised.token, %(worker)s::text, %(pid)s::int,
       %(task_id)s::text, %(acquire_ms)s::float8,
       CASE WHEN claim.id IS NOT NULL THEN 'running'
            WHEN NOT gate.open OR gate.overdue THEN 'late'
            WHEN NOT door.in_order THEN 'prevented'
            WHEN gate.retargeted OR gate.outcome IN ('prevented', 'blocked', 'revoked', 'misfired') THEN 'late'
            ELSE 'duplicate' END,
       claim.id IS NOT NULL,
       CASE WHEN claim.id IS NOT NULL THEN clock_timestamp() END,
       CASE WHEN claim.id IS NOT NULL THEN clock_timestamp() END,
       CASE WHEN claim.id IS NULL THEN (SELECT max(e.id) FROM aegis_scheduler_execution e
            WHERE e.tick_id = gate.id AND e.began) END,
       CASE WHEN claim.id IS NOT NULL THEN ''
            WHEN NOT gate.open THEN 'the schedule is disabled, paused or deleted'
            WHEN gate.overdue THEN 'the deadline of the tick has passed'
            WHEN NOT door.in_order THEN 'a newer grant of this name has started'
            WHEN gate.retargeted THEN 'the strategy of the name was changed after this message was sent'
            WHEN gate.outcome IN ('prevented', 'blocked', 'revoked', 'misfired')
                THEN 'the tick was closed without a run: ' || gate.outcome
            ELSE 'this tick was started by another delivery' END,
       '', ''
FROM gate CROSS JOIN door LEFT JOIN claim ON true LEFT JOIN raised ON true
WHERE claim.id IS NOT NULL
   OR NOT (gate.open AND gate.claimable AND door.in_order AND NOT gate.overdue)
ON CONFLICT (lease_id) DO NOTHING
RETURNING id, state, token, started_at, reason
"""

FENCED = _START.format(
    # A store that numbers its grants proves their order; where it does not, or it is another store than that of the
    # latest grant, start's own order is the order.
    door="""SELECT name, (alias IS DISTINCT FROM %(numbering)s::text OR grant_no IS NULL OR %(grant)s::bigint IS NULL
                OR grant_no < %(grant)s::bigint) AS in_order
    FROM aegis_locks_fence WHERE name = %(name)s::text FOR UPDATE""",
    raised="""UPDATE aegis_locks_fence f
    SET token = greatest(f.token + 1, aegis_locks_next_token()), alias = %(numbering)s::text,
        grant_no = %(grant)s::bigint, lease_id = %(lease)s::uuid
    FROM claim WHERE f.name = %(name)s::text AND f.lease_id IS DISTINCT FROM %(lease)s::uuid RETURNING f.token""",
)

# Strategy ``none`` has no fence: with one, each baseline body would fence out the last.
UNFENCED = _START.format(
    door="SELECT true AS in_order",
    raised="SELECT NULL::bigint AS token FROM claim WHERE false",
)

READ = """
SELECT id, state, token, started_at, reason FROM aegis_scheduler_execution WHERE lease_id = %(lease)s::uuid
"""
