"""FINISH and its kin: the end of a running execution together with the move of its tick.

The execution is found by primary key and guarded by state and lease id; no row means that somebody else ended it
(the reaper, after a silence), and RETURNED then records the late return beside the terminal state.

Whatever ends a run wakes the ticks that wait for the end of a run under its lock name, in the same statement: the
next pass of a beat publishes them. A row that somebody else has locked is passed over, because the end of a body
must not wait for strangers; ``dispatch.WAKE`` sees to it. Nobody is woken while another body runs under the name.
Timeline: a worker dies; its lease runs out; a fresh tick takes the name; only then the reaper gives the dead run up.
A tick that was woken now would be refused, find its place taken, or meet its deadline while the fresh one runs.
"""

from __future__ import annotations

# The grace counts from here: a tick may wait as long as the other run lasts.
WOKEN = """state = 'dispatched', copies = 0, reason = '', dispatch_at = clock_timestamp(),
    deadline = clock_timestamp() + make_interval(secs => w.grace)"""

_WAKE = f"""
    UPDATE aegis_scheduler_tick w SET {WOKEN}
    WHERE w.state = 'waiting' AND w.id IN (
        SELECT o.id FROM aegis_scheduler_tick o, ended
        WHERE o.lock_name = ended.lock_name AND o.state = 'waiting' AND NOT EXISTS (
            SELECT FROM aegis_scheduler_execution e
            WHERE e.lock_name = ended.lock_name AND e.state = 'running' AND e.id <> ended.id)
        FOR UPDATE OF o SKIP LOCKED)
"""

# in: id, lease, state, reason, error, ran, began
_ENDED = """
WITH ended AS (
    UPDATE aegis_scheduler_execution
    SET state = %(state)s::text, ended_at = clock_timestamp(), ran = %(ran)s::float8, began = %(began)s::bool,
        reason = %(reason)s::text, error = %(error)s::text
    WHERE id = %(id)s::bigint AND state = 'running' AND lease_id = %(lease)s::uuid
    RETURNING id, tick_id, attempt, lock_name, ended_at
), moved AS (
    UPDATE aegis_scheduler_tick t SET {move}
    FROM ended
    WHERE t.id = ended.tick_id AND t.state = 'started' AND t.attempt = ended.attempt
    RETURNING t.id
), woken AS ({wake})
SELECT ended_at FROM ended
"""


def _ended(move: str) -> str:
    return _ENDED.format(move=move, wake=_WAKE)


_AGAIN = """state = 'dispatched', attempt = t.attempt + 1, copies = 0,
    dispatch_at = clock_timestamp() + make_interval(secs => {delay}),
    deadline = clock_timestamp() + make_interval(secs => {delay} + t.grace)"""

# Executed or failed: the tick closes with the execution's state. With the tick guard off the first of several
# bodies closes it; later ones find it closed and change no tick.
CLOSE = _ended("state = 'closed', outcome = %(state)s::text, closed_at = clock_timestamp()")

# in, besides: countdown (seconds). The tick waits for its next attempt; the ticker publishes it.
RETRY = _ended(_AGAIN.format(delay="%(countdown)s::float8") + ", retries = t.retries + 1")

# The lease was over before the body was entered: the attempt is not spent.
GIVE_BACK = _ended("state = 'dispatched', dispatch_at = clock_timestamp()")

_SPARE = "t.once_per_tick AND t.attempt < t.max_attempts"


def _spend(outcome: str) -> str:
    """Another attempt where the schedule allows one, else the end of the tick."""
    return f"""
    state = CASE WHEN {_SPARE} THEN 'dispatched' ELSE 'closed' END,
    outcome = CASE WHEN {_SPARE} THEN '' ELSE {outcome} END,
    closed_at = CASE WHEN {_SPARE} THEN NULL ELSE clock_timestamp() END,
    attempt = CASE WHEN {_SPARE} THEN t.attempt + 1 ELSE t.attempt END,
    copies = 0,
    dispatch_at = clock_timestamp(),
    deadline = clock_timestamp() + make_interval(secs => t.grace)"""


# Lost, or cut short: the attempt is spent.
SPEND = _ended(_spend("%(state)s::text"))

# in: id, heartbeat (the value last seen), reason. out: tick_id. By the reaper only.
ABANDON = f"""
WITH ended AS (
    UPDATE aegis_scheduler_execution
    SET state = 'abandoned', ended_at = clock_timestamp(), reason = %(reason)s::text
    WHERE id = %(id)s::bigint AND state = 'running' AND heartbeat_at = %(heartbeat)s
    RETURNING id, tick_id, attempt, lock_name
), moved AS (
    UPDATE aegis_scheduler_tick t SET {_spend("'abandoned'")}
    FROM ended
    WHERE t.id = ended.tick_id AND t.state = 'started' AND t.attempt = ended.attempt
), woken AS ({_WAKE})
SELECT tick_id FROM ended
"""

# in: id, lease, state (what the body came back as). Written once.
RETURNED = """
UPDATE aegis_scheduler_execution
SET returned_at = clock_timestamp(), returned_as = %(state)s::text, ran = %(ran)s::float8
WHERE id = %(id)s::bigint AND lease_id = %(lease)s::uuid AND state = 'abandoned' AND returned_at IS NULL
RETURNING id
"""

# in: ids. out: those that were stamped. A row that somebody is ending at this moment is passed over: a commit that
# takes its time must not silence the other bodies of its process.
HEARTBEAT = """
UPDATE aegis_scheduler_execution SET heartbeat_at = clock_timestamp()
WHERE id IN (SELECT id FROM aegis_scheduler_execution
             WHERE id = ANY(%(ids)s) AND state = 'running' FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id
"""
