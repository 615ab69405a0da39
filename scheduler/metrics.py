"""Figures of now and of 24 hours as gauges, in the text format that Prometheus and OpenTelemetry collectors read.

Source of the format: "Exposition formats", prometheus.io.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from django.db import connection

from scheduler import held
from scheduler.dashboard.header import Header
from scheduler.models import Alert
from scheduler.overview import Overview

# out: name; seconds by which the beats are behind with it (0: in time); when the latest of its fire times that ran
# ended (epoch, null: none among its latest thousand). Not those by hand, which no index finds.
_SCHEDULES = """
SELECT s.name,
       CASE WHEN s.enabled AND s.broken_reason = '' AND (s.paused_at IS NULL OR s.paused_until <= clock_timestamp())
            THEN greatest(0, extract(epoch FROM clock_timestamp() - s.next_fire_at) - s.jitter_seconds) END::float8,
       extract(epoch FROM ended.at)::float8
FROM aegis_scheduler_schedule s
LEFT JOIN LATERAL (
    SELECT t.closed_at AS at FROM (
        SELECT closed_at, outcome FROM aegis_scheduler_tick
        WHERE schedule_id = s.id AND manual_key IS NULL ORDER BY fire_time DESC LIMIT 1000
    ) t WHERE t.outcome = 'executed' LIMIT 1
) ended ON true
ORDER BY s.name LIMIT %(most)s
"""
MOST = 1000  # schedules told one by one


Sample = tuple[Mapping[str, str], float]
"""Labels and a value."""


@dataclass(slots=True)
class Gauge:
    """One figure, once or for each of some labels."""

    name: str
    help: str
    samples: list[Sample] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """As they are exposed."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} gauge"
        for labels, value in self.samples:
            told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{self.name}{{{told}}} {value:.15g}" if told else f"{self.name} {value:.15g}"


def exposition(strip: Header, found: Overview, locks: held.Locks) -> str:
    """All gauges as text; two queries besides what is given."""
    gauges = (*_fleet(strip, found, locks), *_day(found), *_alerts(), *_schedules())
    return "".join(f"{line}\n" for gauge in gauges for line in gauge.lines())


def _fleet(strip: Header, found: Overview, locks: held.Locks) -> Iterator[Gauge]:
    yield Gauge("aegis_beats", "Beats that are alive.", [({}, strip.beats)])
    yield Gauge("aegis_workers", "Workers that are alive.", [({}, strip.workers)])
    yield Gauge("aegis_workers_silent", "Workers that fell silent lately.", [({}, strip.workers_silent)])
    yield Gauge("aegis_running_executions", "Bodies that are inside.", [({}, found.running)])
    yield Gauge("aegis_locks_held", "Lock names that are held.", [({}, len(locks.held))])
    unread: list[Sample] = [({"strategy": one.alias}, 1.0) for one in locks.unread]
    yield Gauge("aegis_store_unreachable", "1: the store of this strategy does not answer.", unread)
    yield Gauge("aegis_schedules", "Schedules by state.", _by("state", found.schedules.items()))


def _day(found: Overview) -> Iterator[Gauge]:
    yield Gauge("aegis_ticks_24h", "Ticks of 24 hours by how they ended.", _by("outcome", found.outcomes.items()))
    overlaps = {"proven": found.overlaps, "possible": found.possible_overlaps}
    yield Gauge("aegis_overlaps_24h", "Bodies too many in 24 hours.", _by("certainty", overlaps.items()))
    yield Gauge("aegis_missed_fire_times_24h", "Fire times missed in 24 hours.", [({}, found.missed_fire_times)])


def _alerts() -> Iterator[Gauge]:
    open_ones = Counter(Alert.objects.filter(state=Alert.State.OPEN).order_by("rule").values_list("rule", flat=True))
    yield Gauge("aegis_alerts_open", "Open alerts by rule.", _by("rule", open_ones.items()))


def _schedules() -> Iterator[Gauge]:
    behind = Gauge("aegis_schedule_overdue_seconds", "By which beats are behind with a schedule that is on.")
    said = "When the latest fire time that ran ended; not runs by hand."
    ended = Gauge("aegis_schedule_last_executed_timestamp_seconds", said)
    with connection.cursor() as cursor:
        cursor.execute(_SCHEDULES, {"most": MOST})
        for name, overdue, at in cursor.fetchall():
            if overdue is not None:
                behind.samples.append(({"schedule": name}, overdue))
            if at is not None:
                ended.samples.append(({"schedule": name}, at))
    yield from (behind, ended)


def _by(label: str, counts: Iterable[tuple[str, float]]) -> list[Sample]:
    return [({label: value.lower()}, float(count)) for value, count in counts]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
