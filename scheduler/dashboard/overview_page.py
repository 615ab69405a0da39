"""The overview: is anything wrong now? What collided, what needs a human, what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from scheduler.charts import BarChart, Marker, bars
from scheduler.charts.scale import window_words
from scheduler.dashboard import rows
from scheduler.dashboard.attention import Found, attention
from scheduler.dashboard.counted import Counted, counted
from scheduler.dashboard.figures import Moment, Tally
from scheduler.dashboard.header import patience
from scheduler.dashboard.headroom import Headroom, tight
from scheduler.dashboard.impact import Answer, impact
from scheduler.dashboard.links import Links
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP, POSSIBLE
from scheduler.dashboard.params import WIDTH, Params, span_links, stamp
from scheduler.dashboard.schedule_table import COLUMNS, figures_of, schedule_rows, worst
from scheduler.dashboard.tiles import tiles
from scheduler.dashboard.upcoming import (
    MOST_UPCOMING,
    Paused,
    Running,
    Upcoming,
    longest_held,
    paused,
    running,
    upcoming,
)

# Room around a collision on the timeline.
_AROUND = timedelta(seconds=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The figures of the window, and what is so now."""

    counted: Counted
    markers: list[Marker]
    running: list[Running]
    upcoming: list[Upcoming]
    paused: list[Paused]
    tight: list[Headroom]
    impact: Answer


def report(given: Mapping[str, str]) -> Report:
    """Read the database within the window and limits."""
    found = counted(given)
    schedule_id, now = found.filter.schedule_id, found.header.now
    return Report(
        counted=found,
        markers=rows.markers_in(found.window, schedule_id),
        running=running(now),
        upcoming=upcoming(now),
        paused=paused(now),
        tight=tight(),
        impact=impact(found.window) if schedule_id is None else Answer(),
    )


def context(found: Report, links: Links, data: str) -> dict[str, Any]:
    """What the template prints. ``data`` is the path of the JSON."""
    here, params, figures = found.counted, found.counted.params, found.counted.figures
    links = replace(
        links,
        window=here.window,
        schedule_id=here.filter.schedule_id,
        around=lambda moment, schedule_id: _around(moment, schedule_id, params, links.timeline),
    )
    shown = worst(figures.schedules)
    told = Found(
        figures=figures,
        header=here.header,
        silence=patience(),
        running=found.running,
        tight=found.tight,
        links=links,
    )
    return {
        "title": "Overview",
        **here.frame(),
        "spans": span_links(params, here.span),
        "when": window_words(here.window, timezone.get_current_timezone()),
        "impact": found.impact,
        "tiles": tiles(figures.total, links),
        "attention": attention(told),
        "upcoming": [(one, links.schedule(one.id)) for one in found.upcoming],
        "paused": [(one, links.schedule(one.id)) for one in found.paused[:MOST_UPCOMING]],
        "more_paused": len(found.paused) > MOST_UPCOMING,
        "held": _held(found, links),
        "chart": _chart(found, links.timeline),
        "schedules": schedule_rows(shown, links.around, links.timeline),
        "more_schedules": len(figures.schedules) - len(shown),
        "schedules_url": links.lists.get("schedule", ""),
        "columns": COLUMNS,
        "sums": figures_of(figures.total),
        "total": figures.total,
        "data_url": params.url(data, window=here.span),
    }


def _held(found: Report, links: Links) -> tuple[Running, str] | None:
    one = longest_held(found.running, rows.unlocked_aliases())
    return (one, links.execution(one.id)) if one else None


def _around(moment: Moment, schedule_id: int | None, params: Params, timeline: str) -> str:
    """The timeline around a collision, with it selected."""
    start, end = moment.start - _AROUND, max(moment.end, moment.start) + _AROUND
    schedule = schedule_id or params.given.get("schedule") or None
    changes = {"from": start, "to": end, "selected": moment.execution_id, "schedule": schedule}
    return params.url(timeline, "selected", window=None, **changes)


def _chart(found: Report, timeline: str) -> BarChart:
    here = found.counted

    def link(start: datetime, end: datetime, word: str) -> str:
        return here.params.url(timeline, window=None, **{"from": start, "to": end})

    return bars(
        here.figures.bins,
        window=here.window,
        step=here.step,
        zone=timezone.get_current_timezone(),
        title="Ticks by outcome",
        id="ticks",
        link=link,
        markers=found.markers,
        width=WIDTH,
    )


def as_json(found: Report) -> dict[str, Any]:
    """The figures behind the page, instants in UTC."""
    here = found.counted
    shown = worst(here.figures.schedules)
    return {
        "schema": "aegis.overview.1",
        "window": {"start": stamp(here.window.start), "end": stamp(here.window.end), "asked": here.span},
        "notes": [note.text for note in here.notes],
        "impact": [one.text for one in found.impact.told],
        "total": _tally(here.figures.total),
        "bin_seconds": here.step,
        "ticks": [{"start": stamp(b.start), **b.values} for b in here.figures.bins],
        "strategies": [
            {
                "name": name,
                **_tally(tally),
                "collided_ticks": [{"start": stamp(b.start), **b.values} for b in bins],
            }
            for name, (tally, bins) in here.figures.groups.items()
        ],
        "schedules": [{"id": key[0], "name": key[1], **_tally(tally)} for key, tally in shown.items()],
        "more_schedules": len(here.figures.schedules) - len(shown),
        "next_ticks": [
            {"schedule": one.name, "at": stamp(one.at), "strategy": one.strategy} for one in found.upcoming
        ],
        "paused": [one.name for one in found.paused],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "strategies": sorted(tally.strategies),
        "tick_guard": sorted(tally.guards),
        "ticks": tally.ticks,
        "outcomes": dict(tally.outcomes),
        "overlaps_proven": tally.too_many[OVERLAP],
        "overlaps_possible": tally.too_many[POSSIBLE],
        "duplicates": tally.too_many[DUPLICATE],
        "prevented_by_lock": tally.refusals["prevented"],
        "prevented_by_tick_guard": tally.refusals["duplicate"],
        "missed_fire_times": tally.missed,
    }
