"""FINISH and its kin: the end of a running execution together with the move of its tick.

The execution is found by primary key and guarded by state and lease id; no row means that somebody else ended it
(the reaper, after a silence), and RETURNED then records the late return beside the terminal state.
"""

from __future__ import annotations

# in: id, lease, state, reason, error, ran, began
_ENDED = """
WITH ended AS (
    UPDATE aegis_scheduler_execution
    SET state = %(state)s::text, ended_at = clock_timestamp(), ran = %(ran)s::float8, began = %(began)s::bool,
        reason = %(reason)s::text, error = %(error)s::text
    WHERE id = %(id)s::bigint AND state = 'running' AND lease_id = %(lease)s::uuid
    RETURNING tick_id, attempt, ended_at
), moved AS (
    UPDATE aegis_scheduler_tick t SET {move}
    FROM ended
    WHERE t.id = ended.tick_id AND t.state = 'started' AND t.attempt = ended.attempt
    RETURNING t.id
)
SELECT ended_at FROM ended
"""

_AGAIN = """state = 'dispatched', attempt = t.attempt + 1, copies = 0,
    dispatch_at = clock_timestamp() + make_interval(secs => {delay}),
    deadline = clock_timestamp() + make_interval(secs => {delay} + t.grace)"""

# Executed or failed: the tick closes with the execution's state. With the tick guard off the first of several
# bodies closes it; later ones find it closed and change no tick.
CLOSE = _ENDED.format(move="state = 'closed', outcome = %(state)s::text, closed_at = clock_timestamp()")

# in, besides: countdown (seconds). The tick waits for its next attempt; the ticker publishes it.
RETRY = _ENDED.format(move=_AGAIN.format(delay="%(countdown)s::float8") + ", retries = t.retries + 1")

# The lease was over before the body was entered: the attempt is not spent.
GIVE_BACK = _ENDED.format(move="state = 'dispatched', dispatch_at = clock_timestamp()")

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


LOSE = _ENDED.format(move=_spend("%(state)s::text"))

# in: id, heartbeat (the value last seen), reason. out: tick_id. By the reaper only.
ABANDON = f"""
WITH ended AS (
    UPDATE aegis_scheduler_execution
    SET state = 'abandoned', ended_at = clock_timestamp(), reason = %(reason)s::text
    WHERE id = %(id)s::bigint AND state = 'running' AND heartbeat_at = %(heartbeat)s
    RETURNING tick_id, attempt
), moved AS (
    UPDATE aegis_scheduler_tick t SET {_spend("'abandoned'")}
    FROM ended
    WHERE t.id = ended.tick_id AND t.state = 'started' AND t.attempt = ended.attempt
)
SELECT tick_id FROM ended
"""

# in: id, lease, state (what the body came back as). Written once.
RETURNED = """
UPDATE aegis_scheduler_execution
SET returned_at = clock_timestamp(), returned_as = %(state)s::text, ran = %(ran)s::float8
WHERE id = %(id)s::bigint AND lease_id = %(lease)s::uuid AND state = 'abandoned' AND returned_at IS NULL
RETURNING id
"""

# in: ids. out: those that are still running; a missing one was ended by somebody else.
HEARTBEAT = """
UPDATE aegis_scheduler_execution SET heartbeat_at = clock_timestamp()
WHERE id = ANY(%(ids)s) AND state = 'running'
RETURNING id
"""
