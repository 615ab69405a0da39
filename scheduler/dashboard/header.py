"""The strip above each page: the server's time, and whether anybody makes and takes ticks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from scheduler.charts.scale import duration_words
from scheduler.conf import conf

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The fleet by the database's clock. ``now`` is that clock."""

    now: datetime
    beat_heard_at: datetime | None
    beats: int
    workers: int
    workers_silent: int
    versions: tuple[str, ...] = ()

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
    """Who is alive, by one query."""
    with connection.cursor() as cursor:
        cursor.execute(_FLEET, {"alive": patience(), "forgotten": FORGOTTEN.total_seconds()})
        now, heard, beats, workers, silent, versions = cursor.fetchone()
    return Header(
        now=now,
        beat_heard_at=heard,
        beats=beats,
        workers=workers,
        workers_silent=silent,
        versions=tuple(versions or ()),
    )
