"""A ledger of a day as large as one likes, made by the database itself: to see how fast the pages are.

Outcomes are mixed as in a fleet that works: most ticks run once, some are refused, some miss their time, few crash.
Under the strategy ``none`` a sixth of the ticks collide, under the others none.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection, transaction

from aegis_site.demo.tasks import settle_invoices
from scheduler.models import Execution, LockName, Schedule, Tick

PREFIX = "fill-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """How many rows were stored."""

    ticks: int
    executions: int


# in:  prefix, ticks, span (s). The n-th tick belongs to the n-th schedule in turn and lies at its place in the span.
#      ``dice`` is in [0, 1), another for each tick, the same for the same number.
_TICKS = """
WITH schedules AS (
    SELECT s.id, s.name, s.task, s.lock_id, n.alias_in_force AS alias, s.once_per_tick,
           row_number() OVER (ORDER BY s.id) - 1 AS place, count(*) OVER () AS number
    FROM aegis_scheduler_schedule s JOIN aegis_scheduler_lockname n ON n.name = s.lock_id
    WHERE s.name LIKE %(prefix)s || '%%'
), made AS (
    SELECT s.*, n, statement_timestamp() - make_interval(secs => %(span)s * (1 - n::float8 / %(ticks)s)) AS at,
           abs(hashint8(n)) %% 10000 / 10000.0 AS dice
    FROM generate_series(0, %(ticks)s - 1) n JOIN schedules s ON s.place = n %% s.number
)
INSERT INTO aegis_scheduler_tick (schedule_id, schedule_name, revision, fire_time, task, args, kwargs, queue,
    delivery, lock_name, lock_alias, ttl, once_per_tick, grace, max_attempts, state, outcome, reason, attempt,
    retries, copies, planned_at, dispatch_at, dispatched_at, deadline, closed_at, missed_count)
SELECT id, name, 1, at, task, '[]', '{}', '', 'one_worker', lock_id, alias, 6, once_per_tick, 60, 1,
    CASE WHEN dice >= 0.998 THEN 'misfired' ELSE 'closed' END,
    CASE WHEN dice < 0.93 THEN 'executed' WHEN dice < 0.96 THEN 'prevented' WHEN dice < 0.98 THEN 'failed'
         WHEN dice < 0.99 THEN 'blocked' WHEN dice < 0.994 THEN 'lost' WHEN dice < 0.998 THEN 'abandoned'
         ELSE 'misfired' END,
    CASE WHEN dice < 0.93 THEN '' ELSE 'filled' END, 1, 0, 0, at, at, at, at + interval '60 seconds',
    at + interval '2 seconds', CASE WHEN dice >= 0.998 THEN 3 ELSE 0 END
FROM made ON CONFLICT DO NOTHING
"""
# One body for each tick that was begun, refused tries beside some, a second body of a sixth of the unguarded ones.
# A tick is delivered 20 ms late, and a body takes up to 0.3 s; the second one begins while the first is inside.
_EXECUTIONS = """
WITH made AS (
    SELECT t.*, abs(hashint8(t.id)) %% 10000 / 10000.0 AS dice, copy
    FROM aegis_scheduler_tick t JOIN generate_series(0, 1) copy ON TRUE
    WHERE t.schedule_name LIKE %(prefix)s || '%%' AND t.id > %(after)s
), tries AS (
    SELECT *, fire_time + make_interval(secs => 0.02 + 0.01 * copy) AS began_at, 0.05 + 0.25 * dice AS length,
           CASE WHEN copy = 1 AND once_per_tick THEN CASE WHEN dice < 0.5 THEN 'duplicate' ELSE 'prevented' END
                WHEN outcome IN ('prevented', 'blocked') THEN outcome
                ELSE outcome END AS became
    FROM made
    WHERE outcome <> 'misfired' AND (copy = 0 OR (dice < 0.17 AND outcome = 'executed'))
)
INSERT INTO aegis_scheduler_execution (tick_id, attempt, guarded, lock_name, lock_alias, state, reason, error,
    lease_id, token, worker, pid, task_id, acquire_ms, recorded_at, started_at, heartbeat_at, ended_at, ran, began,
    returned_as)
SELECT id, 1, once_per_tick, lock_name, lock_alias, became,
    CASE WHEN became IN ('executed', 'failed') THEN '' ELSE 'filled' END, '',
    CASE WHEN begun THEN gen_random_uuid() END, CASE WHEN begun AND lock_alias <> 'none' THEN id END,
    'worker' || id %% 4 || '@filled', 100 + id %% 4, '', 2 + 8 * dice, began_at,
    CASE WHEN begun THEN began_at END, CASE WHEN begun THEN began_at END,
    CASE WHEN begun THEN began_at + make_interval(secs => length) END,
    CASE WHEN begun AND became <> 'abandoned' THEN length END, begun, ''
FROM (SELECT *, became IN ('executed', 'failed', 'lost', 'abandoned') AS begun FROM tries) tries
"""


def fill(executions: int, span: float, aliases: list[str], schedules: int = 20) -> Filled:
    """Store about ``executions`` rows over the last ``span`` seconds, beside what is there."""
    _schedules(aliases, schedules)
    # Of 1,000 ticks 998 are begun or refused, and 158 have a second try.
    ticks = round(executions / 1.156)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")  # a million rows take what they take
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SELECT coalesce(max(id), 0) FROM aegis_scheduler_tick")
        after = cursor.fetchone()[0]
        cursor.execute(_TICKS, {"prefix": PREFIX, "ticks": ticks, "span": span})
        stored = cursor.rowcount
        cursor.execute(_EXECUTIONS, {"prefix": PREFIX, "after": after})
        tries = cursor.rowcount
        cursor.execute("ANALYZE aegis_scheduler_tick, aegis_scheduler_execution")
    return Filled(ticks=stored, executions=tries)


def _schedules(aliases: list[str], number: int) -> None:
    """Switched off, so that no beat makes ticks of them."""
    for place in range(number):
        alias = aliases[place % len(aliases)]
        name = f"{PREFIX}{alias}-{place:02}"
        lock, _ = LockName.objects.update_or_create(
            name=name, defaults={"alias_wanted": alias, "alias_in_force": alias}
        )
        Schedule.objects.update_or_create(
            name=name,
            defaults={
                "task": settle_invoices.name,
                "every_seconds": 2,
                "lock": lock,
                "once_per_tick": alias != "none",
                "enabled": False,
                "notes": "Made by `aegis fill`.",
            },
        )


def empty() -> None:
    """Take away what ``fill`` has stored."""
    with transaction.atomic(), connection.cursor() as cursor:
        known = Tick.objects.filter(schedule_name__startswith=PREFIX)
        Execution.objects.filter(tick__in=known)._raw_delete(using=connection.alias)
        known._raw_delete(using=connection.alias)
        Schedule.objects.filter(name__startswith=PREFIX).delete()
        cursor.execute("DELETE FROM aegis_scheduler_lockname WHERE name LIKE %s", [f"{PREFIX}%"])
