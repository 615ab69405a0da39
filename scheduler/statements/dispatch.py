"""What a beat does to ticks: take due schedules, mark, publish again, settle what nobody began.

Any number of beats run these at once. SKIP LOCKED shares the rows out, and each UPDATE is guarded by the state.
"""

from __future__ import annotations

from scheduler.statements.finish import WOKEN

# in: on_time (seconds). A schedule that catches all up has one tick open at a time until it has caught up: let loose
# at once, all but the first would be refused because that one runs, and be over.
_IN_TURN = """NOT (s.misfire = 'fire_all' AND s.next_fire_at IS NOT NULL
    AND s.next_fire_at < statement_timestamp() - make_interval(secs => least(s.misfire_grace, %(on_time)s::float8))
    AND EXISTS (SELECT FROM aegis_scheduler_tick t WHERE t.lock_name = s.lock_id AND t.schedule_id = s.id
                AND t.state IN ('planned', 'dispatched', 'waiting', 'started')))"""

# in: batch, on_time.
# Deliberately statement_timestamp(): clock_timestamp() is volatile and would read every schedule at each pass.
# The sort column is the index expression of the due index. One whose lock name somebody holds is passed over here: as
# many of them as a batch takes would be the oldest at each pass, and no other would ever be reached. The name stands
# first, so that it is locked first: a schedule under a held one is not locked in vain.
_DUE = f"""
SELECT s.id, statement_timestamp()
FROM aegis_scheduler_lockname n JOIN aegis_scheduler_schedule s ON s.lock_id = n.name
WHERE {{which}}enabled AND NOT exhausted AND broken_reason = ''
  AND (paused_at IS NULL OR paused_until <= statement_timestamp())
  AND coalesce(next_fire_at, 'epoch'::timestamptz) <= statement_timestamp()
  AND {_IN_TURN}
ORDER BY coalesce(next_fire_at, 'epoch'::timestamptz)
LIMIT %(batch)s::int
FOR NO KEY UPDATE SKIP LOCKED
"""
DUE = _DUE.format(which="")
# in, besides: id. That one, if it is due.
DUE_ONE = _DUE.format(which="id = %(id)s::bigint AND ")

# in: id, reason. out: name. Marks a row of which nothing can be loaded; one that somebody holds is left alone.
MARK_BROKEN = """
UPDATE aegis_scheduler_schedule SET broken_reason = %(reason)s::text
WHERE id IN (SELECT id FROM aegis_scheduler_schedule WHERE id = %(id)s::bigint AND broken_reason = ''
             FOR NO KEY UPDATE SKIP LOCKED)
RETURNING name
"""

# in: on_time. out: seconds until the next schedule is due, or NULL; whether any tick waits for the end of a run.
NEXT_DUE = f"""
SELECT extract(epoch FROM min(coalesce(next_fire_at, 'epoch'::timestamptz)) - clock_timestamp())::float8,
       EXISTS (SELECT FROM aegis_scheduler_tick WHERE state = 'waiting')
FROM aegis_scheduler_schedule s
WHERE enabled AND NOT exhausted AND broken_reason = ''
  AND (paused_at IS NULL OR paused_until <= statement_timestamp())
  AND {_IN_TURN}
"""

# in: ids. The guard keeps a fast worker's ``started`` from being overwritten by a slow ticker.
MARK_DISPATCHED = """
UPDATE aegis_scheduler_tick SET state = 'dispatched', dispatched_at = clock_timestamp()
WHERE id = ANY(%(ids)s) AND state = 'planned'
"""

# in: grace (seconds), batch. out: ids, attempts. Moved forward before publishing, so that no other beat takes them
# too. A tick that waited for its jitter is published here for the first time, which makes no copy.
REDISPATCH = """
UPDATE aegis_scheduler_tick
SET copies = copies + CASE WHEN state = 'planned' AND jitter > 0 AND copies = 0 THEN 0 ELSE 1 END,
    dispatch_at = clock_timestamp()
        + least(make_interval(secs => %(grace)s::float8 * power(2, least(copies, 10))), interval '5 minutes')
WHERE id IN (
    SELECT t.id FROM aegis_scheduler_tick t
    WHERE t.state IN ('planned', 'dispatched') AND t.dispatch_at <= statement_timestamp()
      AND t.deadline > statement_timestamp()
    ORDER BY t.dispatch_at LIMIT %(batch)s::int FOR UPDATE SKIP LOCKED)
RETURNING id, attempt
"""

# in: ids, attempts, pause (seconds). What REDISPATCH took and the broker did not: no worker was offered a copy, and
# backing off from workers would let the deadline pass while the broker is back.
UNSENT = """
UPDATE aegis_scheduler_tick t
SET copies = greatest(t.copies - 1, 0), dispatch_at = clock_timestamp() + make_interval(secs => %(pause)s::float8)
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS u (id, attempt)
WHERE t.id = u.id AND t.attempt = u.attempt AND t.state IN ('planned', 'dispatched')
"""

# in: batch. Ticks that wait although no body runs under their name any more: the end that they waited for came
# between their refusal and its commit, or was never stored because its process died. Looked for in each pass, so
# that a lost wake-up costs one pass, whatever lost it.
WAKE = f"""
UPDATE aegis_scheduler_tick w SET {WOKEN}
WHERE w.state = 'waiting' AND w.id IN (
    SELECT o.id FROM aegis_scheduler_tick o
    WHERE o.state = 'waiting' AND NOT EXISTS (
        SELECT FROM aegis_scheduler_execution e WHERE e.lock_name = o.lock_name AND e.state = 'running')
    LIMIT %(batch)s::int FOR UPDATE SKIP LOCKED)
RETURNING w.id
"""

# Ticks of a schedule that was switched off after they were made. A tick that has begun once is never "missed".
SWITCHED_OFF = """
UPDATE aegis_scheduler_tick t
SET state = CASE WHEN t.attempt = 1 THEN 'misfired' ELSE 'closed' END,
    outcome = CASE WHEN t.attempt = 1 THEN 'misfired' ELSE 'revoked' END,
    closed_at = clock_timestamp(),
    reason = off.reason
FROM (
    SELECT o.id, CASE WHEN s.id IS NULL THEN 'deleted' WHEN NOT s.enabled THEN 'disabled'
                      ELSE left('paused' || coalesce(': ' || nullif(s.pause_reason, ''), ''), 500) END AS reason
    FROM aegis_scheduler_tick o LEFT JOIN aegis_scheduler_schedule s ON s.id = o.schedule_id
    WHERE o.state IN ('planned', 'dispatched', 'waiting') AND o.manual_key IS NULL
      AND (s.id IS NULL OR NOT s.enabled
           OR (s.paused_at IS NOT NULL AND (s.paused_until IS NULL OR s.paused_until > statement_timestamp())))
    LIMIT %(batch)s::int FOR UPDATE OF o SKIP LOCKED) off
WHERE t.id = off.id AND t.state IN ('planned', 'dispatched', 'waiting')
RETURNING t.id
"""

# Past the deadline: prevented if a refusal named a holder, blocked if no start was let through, else misfired.
SETTLE = """
UPDATE aegis_scheduler_tick t
SET state = CASE WHEN over.outcome = 'misfired' THEN 'misfired' ELSE 'closed' END,
    outcome = over.outcome,
    closed_at = clock_timestamp(),
    reason = CASE over.outcome
        WHEN 'prevented' THEN 'refused until the deadline: the name was held'
        WHEN 'blocked' THEN 'blocked until the deadline: the lock store did not answer, or the fence was locked'
        WHEN 'misfired' THEN 'no worker took it before the deadline'
        ELSE 'attempt ' || t.attempt || ' did not start before the deadline' END
FROM (
    SELECT o.id, CASE
        WHEN o.attempt > 1 THEN coalesce(
            (SELECT CASE e.state WHEN 'retried' THEN 'failed' ELSE e.state END FROM aegis_scheduler_execution e
             WHERE e.tick_id = o.id AND e.began AND e.ended_at IS NOT NULL ORDER BY e.id DESC LIMIT 1), 'failed')
        WHEN EXISTS (SELECT FROM aegis_scheduler_execution e WHERE e.tick_id = o.id AND e.state = 'prevented')
            THEN 'prevented'
        WHEN EXISTS (SELECT FROM aegis_scheduler_execution e WHERE e.tick_id = o.id AND e.state = 'blocked')
            THEN 'blocked'
        ELSE 'misfired' END AS outcome
    FROM aegis_scheduler_tick o
    WHERE o.state IN ('planned', 'dispatched') AND o.deadline < statement_timestamp()
    LIMIT %(batch)s::int FOR UPDATE SKIP LOCKED) over
WHERE t.id = over.id AND t.state IN ('planned', 'dispatched')
RETURNING t.id, t.outcome
"""

# in: tick, attempt, reason. A revoked message closes its tick, unless a body has begun.
REVOKE = """
UPDATE aegis_scheduler_tick
SET state = 'closed', outcome = 'revoked', closed_at = clock_timestamp(), reason = %(reason)s::text
WHERE id = %(tick)s::bigint AND attempt = %(attempt)s::int AND state IN ('planned', 'dispatched', 'waiting')
RETURNING id
"""

# in: tick (or NULL), key (of a call, or NULL), attempt, reason. Revoked with ``terminate`` while its body ran: there
# is no other attempt. The child stores the end of the body meanwhile; whichever is first, the outcome is failed.
#
#   worker                            child
#   SIGTERM
#   started -> closed                 execution failed; its tick is closed already
#                            or
#                                     execution failed, the tick dispatched again with attempt + 1
#   dispatched, attempt + 1 -> closed
TERMINATED = """
UPDATE aegis_scheduler_tick
SET state = 'closed', outcome = 'failed', reason = %(reason)s::text,
    closed_at = coalesce(closed_at, clock_timestamp())
WHERE (id = %(tick)s::bigint OR manual_key = %(key)s::text)
  AND ((attempt = %(attempt)s::int
        AND (state = 'started' OR (state = 'closed' AND outcome = 'failed' AND reason = '')))
       OR (attempt = %(attempt)s::int + 1 AND state IN ('planned', 'dispatched', 'waiting')))
RETURNING id
"""

# in: tick, attempt, outcome, reason. A run whose caller waited for it and was told that it did not happen must not
# happen later. Only a tick that a call made, and only while nobody has begun it.
FORGO = """
UPDATE aegis_scheduler_tick
SET state = 'closed', outcome = %(outcome)s::text, closed_at = clock_timestamp(), reason = %(reason)s::text
WHERE id = %(tick)s::bigint AND attempt = %(attempt)s::int AND manual_key IS NOT NULL
  AND state IN ('planned', 'dispatched')
RETURNING id
"""

# in: tick. A call that was begun and never answered: whoever had it died, was cut short or lost its lease.
UNANSWERED = """
SELECT id FROM aegis_scheduler_tick
WHERE id = %(tick)s::bigint AND state = 'closed' AND outcome IN ('failed', 'lost', 'abandoned')
"""

# in: name. Puts the wanted strategy in force where nothing under the name is open; see ``LockName``.
SWITCH_ALIAS = """
UPDATE aegis_scheduler_lockname n SET alias_in_force = n.alias_wanted
WHERE n.name = %(name)s::text AND n.alias_in_force <> n.alias_wanted
  AND NOT EXISTS (SELECT FROM aegis_scheduler_tick t
                  WHERE t.lock_name = n.name AND t.state IN ('planned', 'dispatched', 'waiting', 'started'))
  AND NOT EXISTS (SELECT FROM aegis_scheduler_execution e WHERE e.lock_name = n.name AND e.state = 'running')
RETURNING n.alias_in_force
"""
