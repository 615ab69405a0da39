"""One look at all rules: what holds opens or goes on, what is gone is closed, what is new is told.

Any number of beats and ``aegis alerts check`` may look. One statement decides who does, at most every EVERY seconds::

    beat 1: moves looked_at forward, one row -> looks        beat 2: it was moved a moment ago, no row -> does not

Where a look takes longer than that, the unique index of (rule, subject) still lets one alert be opened once. A rule
that cannot be looked at (a store or the database is away) closes nothing and is named on the page.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from scheduler.alerts.channels import deliver
from scheduler.alerts.rules import RULES, Rule, Seen
from scheduler.alerts.settings import alert_settings
from scheduler.error_text import describe, storable
from scheduler.models import AlertRule

logger = logging.getLogger("aegis.alerts")

# in: by, every (seconds). out: the database's clock, if it is our turn; else no row.
_TURN = """
INSERT INTO aegis_scheduler_alertlook AS look (id, looked_at, looked_by, trouble)
VALUES (1, clock_timestamp(), %(by)s, '')
ON CONFLICT (id) DO UPDATE SET looked_at = clock_timestamp(), looked_by = %(by)s
WHERE look.looked_at < clock_timestamp() - %(every)s * interval '1 second'
RETURNING looked_at
"""
# in: rule, and per condition subject, message, schedule, execution, marks (null: no events), weights.
# What is there takes the new message; events are counted once; one whose mute is over is open again.
_SEE = """
INSERT INTO aegis_scheduler_alert AS alert
    (rule, subject, state, message, schedule_id, execution_id, mark, count, first_seen, last_seen, handled_by, note)
VALUES (%(rule)s, %(subject)s, 'open', %(message)s, %(schedule)s, %(execution)s,
    coalesce((SELECT max(m) FROM unnest(%(marks)s::bigint[]) m), 0),
    least(greatest((SELECT sum(w) FROM unnest(%(weights)s::bigint[]) w), 1), %(highest)s),
    clock_timestamp(), clock_timestamp(), '', '')
ON CONFLICT (rule, subject) WHERE state <> 'closed' DO UPDATE SET
    message = excluded.message, last_seen = excluded.last_seen,
    execution_id = coalesce(excluded.execution_id, alert.execution_id), mark = greatest(alert.mark, excluded.mark),
    count = least(alert.count + CASE WHEN %(marks)s::bigint[] IS NULL THEN 1 ELSE coalesce((SELECT sum(w)
        FROM unnest(%(marks)s::bigint[], %(weights)s::bigint[]) u (m, w) WHERE m > alert.mark), 0) END, %(highest)s),
    notified_at = CASE WHEN alert.state = 'muted' AND alert.muted_until <= clock_timestamp()
        THEN NULL ELSE alert.notified_at END,
    state = CASE WHEN alert.state = 'muted' AND alert.muted_until <= clock_timestamp()
        THEN 'open' ELSE alert.state END
"""
# in: most, and what the condition ``gone`` takes. out: what it closed, and whether that had been told. Of what had
# been, it closes ``most`` at the most: the others are closed, and told to be over, by the next look.
_CLOSED = """
UPDATE aegis_scheduler_alert SET state = 'closed', closed_at = clock_timestamp()
WHERE state <> 'closed' AND {gone} AND id IN (
    SELECT id FROM (SELECT id, count(notified_at) OVER (ORDER BY id) AS told FROM aegis_scheduler_alert
                    WHERE state <> 'closed' AND {gone}) waiting
    WHERE told <= %(most)s)
RETURNING id, notified_at IS NOT NULL
"""
# in: rule, subjects that this look found, when it began. What somebody else has seen since then goes on:
#
#   look 1: finds nothing                          look 2: finds it, opens it, tells it
#   look 1: closes what it did not find; without the guard look 3 would open and tell the same once more
_CLOSE = _CLOSED.format(gone="rule = %(rule)s AND NOT subject = ANY(%(subjects)s) AND last_seen < %(began)s")
# in: rules that are on.
_OFF = _CLOSED.format(gone="NOT rule = ANY(%(rules)s)")
_TROUBLE = "UPDATE aegis_scheduler_alertlook SET trouble = %(trouble)s WHERE id = 1"
# Whoever takes one tells it: two that look never tell it twice, and one that dies in between leaves it untold.
_TAKE = """
UPDATE aegis_scheduler_alert SET notified_at = clock_timestamp()
WHERE id IN (SELECT id FROM aegis_scheduler_alert WHERE state = 'open' AND notified_at IS NULL
             ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED)
  AND notified_at IS NULL
RETURNING id
"""
HIGHEST = 2**31 - 1  # what the column of the count holds
MOST_TOLD = 20  # alerts told in one look, and as many told to be over; the others wait for the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look found: conditions that hold, alerts told, rules that could not be looked at with the reason."""

    seen: int
    told: int
    troubles: dict[str, str]


def look(by: str, *, every: float | None = None) -> Look | None:
    """Look at all rules if it is our turn, else None. ``every`` 0: now. Raises ``django.db.Error``: no database.

    Autocommit: no transaction is open while a channel is told.
    """
    wait = alert_settings().every if every is None else every
    turn = _run(_TURN, {"by": by[:255], "every": wait})
    if not turn:
        return None
    troubles: dict[str, str] = {}
    active = active_rules()
    closed: list[int] = []
    seen = sum(_look_at(rule, threshold, turn[0][0], troubles, closed) for rule, threshold in active)
    closed += _closed(_OFF, closed, rules=[rule.key for rule, _ in active])
    _run(_TROUBLE, {"trouble": "\n".join(f"{key}: {why}" for key, why in troubles.items())})
    told = [row[0] for row in _run(_TAKE, {"most": MOST_TOLD})]
    deliver([*closed, *told])
    return Look(seen=seen, told=len(told), troubles=troubles)


def active_rules() -> list[tuple[Rule, float]]:
    """The rules that are on, each with its threshold."""
    stored = {row.key: row for row in AlertRule.objects.all()}
    found = []
    for key, rule in RULES.items():
        row = stored.get(key)
        if row is None or row.enabled:
            given = row.threshold if row else None
            found.append((rule, rule.threshold if given is None else given))
    return found


def _look_at(rule: Rule, threshold: float, now: datetime, troubles: dict[str, str], closed: list[int]) -> int:
    """Store what holds, and close what does not any more: only where the rule came to its end. ``closed`` gets the
    ids of those that had been told.
    """
    try:
        seen = list(rule.find(now, threshold))
        for one in seen:
            _run(_SEE, _row(rule, one))
        subjects = [_subject(one) for one in seen]
        closed += _closed(_CLOSE, closed, rule=rule.key, subjects=subjects, began=now)
    except Exception as trouble:  # whatever a store raises; the other rules are looked at all the same
        troubles[rule.key] = storable(describe(trouble), 300)
        logger.warning("rule %s could not be looked at: %s", rule.key, troubles[rule.key])
        return 0
    return len(seen)


def _closed(sql: str, before: Sequence[int], **gone: Any) -> list[int]:
    """Close what is gone; the ids of those that had been told: only of them it is told that they are over."""
    rows = _run(sql, {**gone, "most": MOST_TOLD - len(before)})
    return [row_id for row_id, told in rows if told]


def _subject(seen: Seen) -> str:
    return storable(seen.subject, 300) or "-"


def _row(rule: Rule, seen: Seen) -> dict[str, Any]:
    return {
        "rule": rule.key,
        "subject": _subject(seen),
        "message": storable(seen.message, 500),
        "schedule": seen.schedule_id,
        "execution": seen.execution_id,
        "marks": None if seen.marks is None else list(seen.marks),
        "weights": None if seen.marks is None else list(seen.weights or [1] * len(seen.marks)),
        "highest": HIGHEST,
    }


def _run(sql: str, parameters: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []
