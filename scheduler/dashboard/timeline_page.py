"""The timeline by worker: who ran when, where two were inside at once, and who was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

from locks import lock_backends
from scheduler.charts import Marker, Timeline, Window, timeline
from scheduler.charts.timeline import MOST_LANES
from scheduler.collisions import Body, Duplicate, Overlaps, duplicates, overlaps
from scheduler.dashboard import rows, tries
from scheduler.dashboard.drawing import meetings, refusals, spans
from scheduler.dashboard.facts import TryRow
from scheduler.dashboard.header import Header, header
from scheduler.dashboard.notes import Note, empty_notes
from scheduler.dashboard.params import WIDTH, Link, Params, ScheduleFilter, stamp
from scheduler.dashboard.selected import Selected, company, selected
from scheduler.dashboard.timeline_window import window_of, zoom_links
from scheduler.states import ExecutionState


class TimelineFilter(ScheduleFilter):
    """One schedule, strategy or outcome of a try, or all."""

    strategy = forms.ChoiceField(
        required=False,
        error_messages={"invalid_choice": "There is no strategy %(value)s. Choose one of the list."},
    )

    outcome = forms.ChoiceField(
        required=False,
        choices=[("", "All outcomes"), *ExecutionState.choices],
        error_messages={"invalid_choice": "There is no outcome %(value)s. Choose one of the list."},
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        choice = self.fields["strategy"]
        assert isinstance(choice, forms.ChoiceField)
        choice.choices = [("", "All strategies"), *((alias, alias) for alias in lock_backends.aliases())]

    @property
    def wanted(self) -> tries.Wanted:
        """What was chosen."""
        return tries.Wanted(
            schedule_id=self.schedule_id,
            strategy=self.cleaned_data.get("strategy", ""),
            state=self.cleaned_data.get("outcome", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was asked and what was found; ``tries`` are the newest first."""

    params: Params
    header: Header
    filter: TimelineFilter
    now: datetime
    window: Window
    workers: list[str]
    tries: list[TryRow]
    bodies: list[Body]
    met: Overlaps
    repeated: list[Duplicate]
    markers: list[Marker]
    selected: Selected | None
    notes: list[Note]


def report(given: Mapping[str, str]) -> Report:
    """Read the database within the window and limits; the window shrinks to what fits, with a note."""
    params = Params(given)
    strip, chosen = header(), TimelineFilter(params)
    wanted = chosen.wanted
    now = params.instant("at") or strip.now
    window, notes = window_of(params, wanted, now)
    found, cut = tries.tries_in(window, wanted)
    if cut and found[-1].recorded_at > window.start:
        window = Window(start=found[-1].recorded_at, end=window.end)
        notes.append(_cut_note(window))
    bodies, _ = rows.bodies_in(window, {row.lock_name for row in found if row.started_at})
    met, repeated = overlaps(bodies, unlocked=rows.unlocked_aliases()), duplicates(bodies)
    choice = _selected(params, {row.id: row for row in found}, met, repeated, strip.now)
    if not found:
        notes += empty_notes(params, window, now, wanted.schedule_id)
    return Report(
        params=params,
        header=strip,
        filter=chosen,
        now=now,
        window=window,
        workers=tries.workers_in(window),
        tries=found,
        bodies=bodies,
        met=met,
        repeated=repeated,
        markers=rows.markers_in(window, wanted.schedule_id),
        selected=choice,
        notes=[*(Note(problem) for problem in params.problems), *notes],
    )


def _cut_note(window: Window) -> Note:
    start = timezone.localtime(window.start)
    return Note(
        f"Only the newest {tries.MOST_TRIES:,} tries are shown: the timeline begins at {start:%H:%M:%S} on "
        f"{start.day} {start:%b}. Zoom in to see others."
    )


def _selected(
    params: Params, found: Mapping[int, TryRow], met: Overlaps, repeated: list[Duplicate], now: datetime
) -> Selected | None:
    """The one that was asked for, with the rows of its company; those that are not drawn are looked up."""
    number = params.number("selected")
    if number is None:
        return None
    row = found.get(number) or tries.tries_of([number]).get(number)
    if row and row.started_at and len(company(number, met, repeated, None)) == 1:  # what is drawn is not all
        bodies = rows.bodies_beside(row, now)
        met, repeated = overlaps(bodies, unlocked=rows.unlocked_aliases()), duplicates(bodies)
    needed = company(number, met, repeated, row.holder_id if row else None)
    missing = [n for n in needed if n not in found]
    known = {**found, **(tries.tries_of(missing) if missing else {})}
    choice = selected(number, {n: known[n] for n in needed if n in known}, met, repeated)
    if choice is None:
        params.problems.append(f"selected: there is no execution {number}; it may have been pruned.")
    return choice


def context(found: Report, data: str) -> dict[str, Any]:
    """What the template prints. ``data`` is the path of the JSON."""
    params, window, chart = found.params, found.window, _chart(found)
    here = {"from": window.start, "to": window.end}
    return {
        "title": "Timeline",
        "header": found.header,
        "notes": found.notes,
        "filter": found.filter,
        "kept": {"at": params.given["at"]} if params.given.get("at") else {},
        "bounds": {name: f"{timezone.localtime(at):%Y-%m-%dT%H:%M:%S}" for name, at in here.items()},
        "zone": timezone.localtime(window.end).tzname(),
        "zoom": zoom_links(params, window),
        "frozen": found.now if params.given.get("at") and found.now != found.header.now else None,
        "live_url": params.url(at=None),
        "chart": chart,
        "lanes": _lane_links(params, chart),
        "selected": found.selected,
        "data_url": params.url(data, **here),
    }


def _chart(found: Report) -> Timeline:
    """The marks, each with the page on which it is selected."""
    params, window = found.params, found.window
    base = params.url(selected=None, **{"from": window.start, "to": window.end})

    def select(number: int) -> str:
        return f"{base}&selected={number}#selected"

    def zoom(start: datetime, end: datetime) -> str:
        return params.url(**{"from": start, "to": end, "selected": None})

    by_id = {row.id: row for row in found.tries}
    return timeline(
        window=window,
        workers=found.workers,
        spans=spans(found.tries, found.bodies, found.repeated, select),
        refusals=refusals(found.tries, select),
        meetings=meetings(found.met, found.bodies, by_id, select),
        markers=found.markers,
        now=found.now,
        zone=timezone.get_current_timezone(),
        title="Executions by worker",
        zoom=zoom,
        selected=select(found.selected.tries[0].row.id) if found.selected else "",
        width=WIDTH,
        first_lane=found.params.number("lanes") or 0,
    )


def _lane_links(params: Params, chart: Timeline) -> list[Link]:
    """Thirty workers at a time, where there are more."""
    if chart.workers <= MOST_LANES:
        return []
    return [
        Link(
            text=f"{first + 1} to {min(first + MOST_LANES, chart.workers)}",
            url=params.url(lanes=first or None),
            current=first == chart.first_lane,
        )
        for first in range(0, chart.workers, MOST_LANES)
    ]


def as_json(found: Report) -> dict[str, Any]:
    """The rows behind the chart, instants in UTC."""
    inside = {overlap.execution_id: overlap for overlap in (*found.met.proven, *found.met.possible)}
    return {
        "schema": "aegis.timeline.1",
        "window": {"start": stamp(found.window.start), "end": stamp(found.window.end)},
        "notes": [note.text for note in found.notes],
        "workers": found.workers,
        "executions": [_try(row) for row in reversed(found.tries)],
        "overlaps": [
            {
                "execution": overlap.execution_id,
                "others": list(overlap.others),
                "lock_name": overlap.lock_name,
                "start": stamp(overlap.start),
                "end": stamp(overlap.end) if overlap.end else None,
                "proven": overlap.proven,
                "cause": overlap.cause.value,
            }
            for overlap in inside.values()
        ],
        "duplicates": [
            {"execution": d.execution_id, "beside": d.beside, "tick": d.tick_id, "cause": d.cause.value}
            for d in found.repeated
        ],
    }


def _try(row: TryRow) -> dict[str, Any]:
    known = row._asdict()
    return {name: stamp(value) if isinstance(value, datetime) else value for name, value in known.items()}
