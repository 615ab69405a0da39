"""A window and its figures: what the overview and the page of strategies begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduler.charts import Window, bin_seconds
from scheduler.dashboard import rows
from scheduler.dashboard.figures import Figures
from scheduler.dashboard.header import Header, header
from scheduler.dashboard.notes import Note, cut_text, empty_notes
from scheduler.dashboard.params import SPANS, Params, ScheduleFilter, last, shortest_span
from scheduler.dashboard.summary import SLICE, aligned, figures_in

# Seconds: shorter windows are counted from their rows, in finer bins.
SUMMED_FROM = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was asked and what was found. ``notes`` say what a reader must know of it."""

    params: Params
    header: Header
    filter: ScheduleFilter
    span: str
    now: datetime
    window: Window
    step: int
    figures: Figures
    notes: list[Note]

    def frame(self) -> dict[str, Any]:
        """What the frame of a page and its filter print."""
        given = self.params.given
        return {
            "header": self.header,
            "notes": self.notes,
            "filter": self.filter,
            "kept": {name: given[name] for name in ("window", "at") if given.get(name)},
            "frozen": self.now if given.get("at") and self.now != self.header.now else None,
            "live_url": self.params.url(at=None),
        }


def counted(given: Mapping[str, str]) -> Counted:
    """Read the database within the window and limits; the window shrinks to what fits, with a note."""
    params = Params(given)
    strip, chosen = header(), ScheduleFilter(params)
    schedule_id = chosen.schedule_id
    now = params.instant("at") or strip.now
    span = _span(params, schedule_id, now)
    step = bin_seconds(last(SPANS[span], now))
    if SPANS[span] >= SUMMED_FROM:
        step = max(step, SLICE)  # what was summed up serves whole slices
    window = aligned(last(SPANS[span], now), step)
    figures, cut = figures_in(window, step, schedule_id)
    notes = [Note(problem) for problem in params.problems]
    if cut is not None:
        window = Window(start=cut, end=now)
        notes.append(Note(f"{cut_text(cut, span)} Choose a shorter window or one schedule."))
    if not figures.total.ticks:
        notes += empty_notes(params, window, now, schedule_id)
    return Counted(
        params=params, header=strip, filter=chosen, span=span, now=now, window=window, step=step, figures=figures,
        notes=notes,
    )  # fmt: skip


def _span(params: Params, schedule_id: int | None, now: datetime) -> str:
    """The window asked for, else the shortest that shows something."""
    asked = params.given.get("window", "")
    if asked and asked not in SPANS:
        params.problems.append(f'window: "{asked}" is not one of {", ".join(SPANS)}.')
    if asked in SPANS:
        return asked
    return shortest_span(rows.latest_tick(schedule_id, before=now), now)
