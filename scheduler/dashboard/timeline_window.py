"""Which stretch of time a timeline shows: as asked, else the latest that can be drawn one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from scheduler.charts import Window
from scheduler.charts.scale import duration_words
from scheduler.dashboard.notes import Note
from scheduler.dashboard.params import LONGEST, SHORTEST, Link, Params, last
from scheduler.dashboard.tries import FEW, Wanted, newest_stamps

_SPANS = (10, 20, 30, 60, 120, 300, 600, 1_800, 3_600)
_MINUTE = timedelta(minutes=1)


def window_of(params: Params, wanted: Wanted, now: datetime) -> tuple[Window, list[Note]]:
    """The window, and what is to be said of it."""
    start, end = params.instant("from"), params.instant("to")
    if start is None and end is None:
        return latest_window(newest_stamps(wanted, now), now)
    end = end or (now if start and start < now else (start or now) + _MINUTE)
    start = start or end - _MINUTE
    if end <= start:
        params.problems.append(f'to: "{params.given.get("to", "")}" is not after from; give a later time.')
        return Window(start=start, end=start + _MINUTE), []
    if end - start > LONGEST:
        note = Note("A timeline shows seven days at most: these are the last seven before its end.")
        return Window(start=end - LONGEST, end=end), [note]
    return Window(start=start, end=max(end, start + SHORTEST)), []


def latest_window(stamps: Sequence[datetime], now: datetime) -> tuple[Window, list[Note]]:
    """The widest round window that few tries lie in, and no wider than they need; ``stamps`` newest first.

    It ends now, or, where the latest try is long past, just after it.
    """
    if not stamps:
        return last(60, now), []
    notes, end = [], now
    if now - stamps[0] > _MINUTE:
        end = stamps[0] + timedelta(seconds=1)
        ago = duration_words((now - stamps[0]).total_seconds())
        notes.append(Note(f"The latest try was {ago} ago: the window ends there."))
    counts = {span: sum(at >= end - timedelta(seconds=span) for at in stamps) for span in _SPANS}
    fits = [span for span in _SPANS if counts[span] < FEW] or [_SPANS[0]]
    most = counts[fits[-1]]
    return last(next(span for span in fits if counts[span] == most), end), notes


def zoom_links(params: Params, window: Window) -> list[Link]:
    """To move and zoom without a script."""
    length = window.end - window.start
    middle = window.start + length / 2
    moves = {
        "Earlier": (window.start - length / 2, window.end - length / 2),
        "Later": (window.start + length / 2, window.end + length / 2),
        "Zoom in": (middle - length / 4, middle + length / 4),
        "Zoom out": (middle - length, middle + length),
    }
    links = [
        Link(text=text, url=params.url(**{"from": start, "to": end, "selected": None}))
        for text, (start, end) in moves.items()
        if SHORTEST <= end - start <= LONGEST
    ]
    return [*links, Link(text="Latest", url=params.url(**{"from": None, "to": None, "selected": None}))]
