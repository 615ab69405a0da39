"""The strip above each page: the server's time, and whether anybody makes and takes ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection

from locks import InvalidLockBackend, lock_backends
from scheduler.charts.scale import duration_words
from scheduler.conf import conf
from scheduler.ledger import LOCKED

# A process that was not heard of for this long is gone, not silent.
FORGOTTEN = timedelta(minutes=15)

# in:  alive, forgotten (seconds). out: the database's clock, when a beat was last heard, beats alive, workers
#      alive, workers silent, versions alive. Whoever said good-bye is not counted.
_FLEET = """
SELECT clock_timestamp(), max(heartbeat_at) FILTER (WHERE kind = 'beat'),
       count(*) FILTER (WHERE kind = 'beat' AND here AND age <= %(alive)s),
       count(*) FILTER (WHERE kind = 'worker' AND here AND age <= %(alive)s),
       count(*) FILTER (WHERE kind = 'worker' AND here AND age > %(alive)s AND age <= %(forgotten)s),
       array_agg(DISTINCT version ORDER BY version) FILTER (WHERE here AND age <= %(alive)s AND version <> '')
FROM (SELECT kind, version, heartbeat_at, stopped_at IS NULL AS here,
             extract(epoch FROM clock_timestamp() - heartbeat_at) AS age
      FROM aegis_scheduler_instance) fleet
"""


# in:  aliases, recent (seconds), locked (a reason). out: of each, whether its store was silent for its newest
#      execution, and how long ago (s). No store is asked. Whoever was kept waiting by a guard had been given a lease.
_STORES = """
SELECT alias, newest.silent, extract(epoch FROM clock_timestamp() - newest.recorded_at)::float8
FROM unnest(%(aliases)s::text[]) alias CROSS JOIN LATERAL (
    SELECT e.state = 'blocked' AND e.reason <> %(locked)s AS silent, e.recorded_at
    FROM aegis_scheduler_execution e
    WHERE e.lock_alias = alias AND e.recorded_at > clock_timestamp() - make_interval(secs => %(recent)s)
    ORDER BY e.recorded_at DESC LIMIT 1
) newest
"""
# A store that nobody has used for this long is not spoken of, seconds.
RECENT = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The strategies whose store answered when it was last used, and those where it did not, with how long ago."""

    ok: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The fleet by the database's clock. ``now`` is that clock."""

    now: datetime
    beat_heard_at: datetime | None
    beats: int
    workers: int
    workers_silent: int
    versions: tuple[str, ...] = ()
    stores: Stores = field(default_factory=Stores)

    @property
    def beat_age(self) -> str:
        """How long ago a beat was heard, in words."""
        if self.beat_heard_at is None:
            return ""
        return duration_words(max(0.0, (self.now - self.beat_heard_at).total_seconds()))


def patience() -> float:
    """Seconds of silence after which a process or a body is not counted as alive."""
    return float(max(conf("SILENCE_GRACE"), 3 * conf("HEARTBEAT")))


def header() -> Header:
    """Who is alive, and which stores answered when they were last used. Two queries; no store is asked."""
    with connection.cursor() as cursor:
        cursor.execute(_FLEET, {"alive": patience(), "forgotten": FORGOTTEN.total_seconds()})
        now, heard, beats, workers, silent, versions = cursor.fetchone()
        cursor.execute(_STORES, {"aliases": _locking(), "recent": RECENT, "locked": LOCKED})
        stores = _stores(cursor.fetchall())
    return Header(
        now=now,
        beat_heard_at=heard,
        beats=beats,
        workers=workers,
        workers_silent=silent,
        versions=tuple(versions or ()),
        stores=stores,
    )


def _locking() -> list[str]:
    """The strategies that have a store."""
    found = []
    for alias in lock_backends.aliases():
        try:
            if lock_backends[alias].exclusive:
                found.append(alias)
        except InvalidLockBackend:  # told by `manage.py check`
            continue
    return found


def _stores(rows: list[tuple[str, bool, float]]) -> Stores:
    return Stores(
        ok=tuple(sorted(alias for alias, silent, _ in rows if not silent)),
        away=tuple(
            f"{alias} did not answer {duration_words(max(0.0, age))} ago"
            for alias, silent, age in sorted(rows)
            if silent
        ),
    )
