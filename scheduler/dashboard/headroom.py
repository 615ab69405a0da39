"""How much of a schedule's lease its own runs leave over, by one definition for pages and alerts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Q

from locks import InvalidLockBackend, lock_backends
from scheduler.dashboard.latest import p95_of
from scheduler.models import Schedule

# Of the lease, that should be left after all but one run in twenty.
ENOUGH = 0.2
# Schedules looked at whose lease is not renewed: those with the shortest leases.
MOST = 500


class Lease(NamedTuple):
    """What guards a schedule's runs: how long, in seconds, and whether it is renewed meanwhile."""

    seconds: float
    renewed: bool

    def left(self, p95: float) -> float:
        """The share of it that nineteen runs of twenty leave over; below zero where they outlive it."""
        return 1 - p95 / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """``lease`` and ``p95`` are seconds; ``share`` of the lease was left after nineteen runs of twenty."""

    schedule_id: int
    schedule: str
    lease: float
    p95: float
    share: float


def lease_of(alias: str, ttl: float | None) -> Lease | None:
    """Under this strategy, with the schedule's own TTL if it has one; None where no clock ends it."""
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend:  # told by `manage.py check`
        return None
    if not backend.exclusive or backend.session_bound:
        return None
    return Lease(ttl or backend.ttl, backend.renewable)


def lease_that_guards(schedule: Schedule) -> Lease | None:
    """As the schedule stands; None where no clock ends it."""
    return lease_of(schedule.lock.alias_in_force or schedule.lock.alias_wanted, schedule.ttl)


def tight(enough: float = ENOUGH) -> list[Headroom]:
    """Schedules whose runs leave less than ``enough`` of a lease that is not renewed, the tightest first.

    Two queries, or none where every strategy renews.
    """
    leases = _not_renewed()
    p95s = p95_of([pk for pk, _, _ in leases])
    found = [
        Headroom(schedule_id=pk, schedule=name, lease=lease.seconds, p95=p95, share=lease.left(p95))
        for pk, name, lease in leases
        if (p95 := p95s[pk]) is not None
    ]
    return sorted((one for one in found if one.share < enough), key=lambda one: one.share)


def _not_renewed() -> list[tuple[int, str, Lease]]:
    """Enabled schedules under leases that nothing renews, the shortest leases first."""
    aliases = [alias for alias in lock_backends.aliases() if (one := lease_of(alias, None)) and not one.renewed]
    if not aliases:
        return []
    under = Q(lock__alias_in_force__in=aliases) | Q(lock__alias_in_force="", lock__alias_wanted__in=aliases)
    rows = Schedule.objects.filter(under, enabled=True).select_related("lock").only("name", "ttl", "lock")
    found = [(row.pk, row.name, lease) for row in rows if (lease := lease_that_guards(row))]
    return sorted(found, key=lambda one: one[2].seconds)[:MOST]
