"""How close runs come to the end of a lease that nothing renews."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from locks import InvalidLockBackend, lock_backends

# Runs of one lock name that its figure is made of, and names that are looked at.
RUNS = 100
MOST_NAMES = 200
# Of the lease, that should be left after all but one run in twenty.
ENOUGH = 0.2

# in:  aliases, runs, names. out: schedule id and name, strategy, the lease (s) and the 95th percentile of its newest
#      runs (s). A schedule without a TTL of its own has null: that of its strategy.
_P95 = """
SELECT s.id, s.name, n.alias_in_force, s.ttl, runs.p95
FROM (SELECT * FROM aegis_scheduler_schedule WHERE enabled ORDER BY id LIMIT %(names)s) s
JOIN aegis_scheduler_lockname n ON n.name = s.lock_id AND n.alias_in_force = ANY(%(aliases)s)
CROSS JOIN LATERAL (
    SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY ran) AS p95, count(ran) AS number
    FROM (SELECT e.ran FROM aegis_scheduler_execution e
          WHERE e.lock_name = n.name AND e.began
          ORDER BY e.started_at DESC LIMIT %(runs)s) newest
) runs
WHERE runs.number >= 5
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """``lease`` and ``p95`` are seconds; ``share`` of the lease was left after nineteen runs of twenty."""

    schedule_id: int
    schedule: str
    strategy: str
    lease: float
    p95: float

    @property
    def share(self) -> float:
        """Below zero where runs outlive the lease."""
        return 1 - self.p95 / self.lease


def tight() -> list[Headroom]:
    """Schedules whose runs nearly fill a lease that is not renewed, the tightest first. One query, or none."""
    leases = _not_renewed()
    if not leases:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_P95, {"aliases": list(leases), "runs": RUNS, "names": MOST_NAMES})
        rows = cursor.fetchall()
    found = [
        Headroom(schedule_id=pk, schedule=name, strategy=alias, lease=ttl or leases[alias], p95=p95)
        for pk, name, alias, ttl, p95 in rows
    ]
    return sorted((one for one in found if one.share < ENOUGH), key=lambda one: one.share)


def _not_renewed() -> dict[str, float]:
    """The strategies whose leases are never renewed, with their length in seconds."""
    found = {}
    for alias in lock_backends.aliases():
        try:
            backend = lock_backends[alias]
        except InvalidLockBackend:  # told by `manage.py check`
            continue
        if backend.exclusive and not backend.renewable:
            found[alias] = backend.ttl
    return found
