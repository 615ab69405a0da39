"""The page of collisions: how many, when, under which strategy, of which schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from scheduler.charts import BarChart, Marker, Window, bars, bin_seconds, strips
from scheduler.charts.scale import window_words
from scheduler.dashboard import rows
from scheduler.dashboard.bounds import none_of
from scheduler.dashboard.figures import Figures, Moment, Tally, count
from scheduler.dashboard.header import Header, header
from scheduler.dashboard.notes import Note, empty_notes
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP, POSSIBLE
from scheduler.dashboard.params import (
    SPANS,
    WIDTH,
    Params,
    ScheduleFilter,
    last,
    shortest_span,
    span_links,
    stamp,
)
from scheduler.dashboard.schedule_table import schedule_rows
from scheduler.dashboard.tiles import tiles

# Room around a collision on the timeline.
_AROUND = timedelta(seconds=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was asked and what was found. ``notes`` say what a reader must know of it."""

    params: Params
    header: Header
    filter: ScheduleFilter
    span: str
    now: datetime
    window: Window
    step: int
    figures: Figures
    markers: list[Marker]
    notes: list[Note]


def report(given: Mapping[str, str]) -> Report:
    """Read the database within the window and limits; the window shrinks to what fits, with a note."""
    params = Params(given)
    strip, chosen = header(), ScheduleFilter(params)
    schedule_id = chosen.schedule_id
    now = params.instant("at") or strip.now
    span = _span(params, schedule_id, now)
    window = last(SPANS[span], now)
    ticks, cut = rows.ticks_in(window, schedule_id)
    if cut:
        window = Window(start=ticks[-1].fire_time, end=now)
    names = None if schedule_id is None else {tick.lock_name for tick in ticks}
    bodies, complete_from = rows.bodies_in(window, names)
    if complete_from is not None and window.start < complete_from < now:
        window = Window(start=complete_from, end=now)
        ticks = [tick for tick in ticks if tick.fire_time >= complete_from]
    step = bin_seconds(window)
    unlocked = rows.unlocked_aliases()
    figures = count(ticks, bodies, rows.refused_in(window, schedule_id), step=step, unlocked=unlocked)
    notes = [Note(problem) for problem in params.problems]
    if window.seconds < SPANS[span]:
        notes.append(_cut_note(window, span))
    if not ticks:
        notes += empty_notes(params, window, now, schedule_id)
    return Report(
        params=params,
        header=strip,
        filter=chosen,
        span=span,
        now=now,
        window=window,
        step=step,
        figures=figures,
        markers=rows.markers_in(window, schedule_id),
        notes=notes,
    )


def _span(params: Params, schedule_id: int | None, now: datetime) -> str:
    """The window asked for, else the shortest that shows something."""
    asked = params.given.get("window", "")
    if asked and asked not in SPANS:
        params.problems.append(f'window: "{asked}" is not one of {", ".join(SPANS)}.')
    if asked in SPANS:
        return asked
    return shortest_span(rows.latest_tick(schedule_id, before=now), now)


def _cut_note(window: Window, span: str) -> Note:
    start = timezone.localtime(window.start)
    return Note(
        f"The last {span} hold more than is counted on one page: these figures begin at {start:%H:%M:%S} on "
        f"{start.day} {start:%b}. Choose a shorter window or one schedule."
    )


def context(found: Report, timeline: str, data: str) -> dict[str, Any]:
    """What the template prints. ``timeline`` and ``data`` are the paths of those pages."""
    params, figures = found.params, found.figures
    zone = timezone.get_current_timezone()
    newest = figures.total.latest
    return {
        "title": "Collisions",
        "header": found.header,
        "notes": found.notes,
        "spans": span_links(params, found.span),
        "filter": found.filter,
        "kept": {name: params.given[name] for name in ("window", "at") if params.given.get(name)},
        "frozen": found.now if params.given.get("at") and found.now != found.header.now else None,
        "live_url": params.url(at=None),
        "when": window_words(found.window, zone),
        "tiles": tiles(figures.total, _around(newest, params, timeline) if newest else ""),
        "chart": _chart(found, timeline),
        "strips": _strips(found, timeline),
        "schedules": schedule_rows(figures, lambda moment: _around(moment, params, timeline), timeline),
        "total": figures.total,
        "data_url": params.url(data, window=found.span),
    }


def _around(moment: Moment, params: Params, timeline: str) -> str:
    """The timeline around a collision, with it selected."""
    start, end = moment.start - _AROUND, max(moment.end, moment.start) + _AROUND
    schedule = params.given.get("schedule") or None
    changes = {"from": start, "to": end, "selected": moment.execution_id, "schedule": schedule}
    return params.url(timeline, "selected", window=None, **changes)


def _chart(found: Report, timeline: str) -> BarChart:
    def link(start: datetime, end: datetime, word: str) -> str:
        return found.params.url(timeline, window=None, **{"from": start, "to": end})

    return bars(
        found.figures.bins,
        window=found.window,
        step=found.step,
        zone=timezone.get_current_timezone(),
        title="Ticks by outcome",
        id="ticks",
        link=link,
        markers=found.markers,
        width=WIDTH,
    )


def _strips(found: Report, timeline: str) -> list[BarChart]:
    """One small chart for each strategy, on one scale, an empty one where nothing collided."""
    groups, params = found.figures.groups, found.params

    def link(start: datetime, end: datetime, word: str) -> str:
        return params.url(timeline, window=None, **{"from": start, "to": end})

    charts = strips(
        {name: bins for name, (_, bins) in groups.items()},
        window=found.window,
        step=found.step,
        zone=timezone.get_current_timezone(),
        links=dict.fromkeys(groups, link),
        width=WIDTH,
        height=92,
    )
    return [replace(chart, summary=_sentence(groups[chart.title][0])) for chart in charts]


def _sentence(tally: Tally) -> str:
    """What a strip shows."""
    if not tally.collided:
        return f"{none_of(tally.ticks)} collided."
    words = {OVERLAP: "proven overlap", POSSIBLE: "possible overlap", DUPLICATE: "duplicate"}
    counts = [(tally.too_many[word], name) for word, name in words.items()]
    told = ", ".join(f"{number:,} {name}{'' if number == 1 else 's'}" for number, name in counts if number)
    return f"{tally.collided:,} of {tally.ticks:,} ticks collided: {told}."


def as_json(found: Report) -> dict[str, Any]:
    """The figures behind the page, instants in UTC."""
    return {
        "schema": "aegis.collisions.1",
        "window": {"start": stamp(found.window.start), "end": stamp(found.window.end), "asked": found.span},
        "notes": [note.text for note in found.notes],
        "total": _tally(found.figures.total),
        "bin_seconds": found.step,
        "ticks": [{"start": stamp(b.start), **b.values} for b in found.figures.bins],
        "strategies": [
            {
                "name": name,
                **_tally(tally),
                "collided_ticks": [{"start": stamp(b.start), **b.values} for b in bins],
            }
            for name, (tally, bins) in found.figures.groups.items()
        ],
        "schedules": [
            {"id": key[0], "name": key[1], **_tally(tally)} for key, tally in found.figures.schedules.items()
        ],
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
