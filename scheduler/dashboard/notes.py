"""Sentences above a page: what is wrong with the request, what was cut, what to do where nothing is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from scheduler.charts import Window
from scheduler.charts.scale import duration_words
from scheduler.cli import offers
from scheduler.dashboard import rows
from scheduler.dashboard.params import Params
from scheduler.models import Schedule


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence, and a next step: a ``url``, or a ``view`` of the site that shows the page."""

    text: str
    link: str = ""
    url: str = ""
    view: str = ""


def cut_text(start: datetime, span: str = "24h") -> str:
    """That the figures of a window begin later than it does."""
    local = timezone.localtime(start)
    return (
        f"The last {span} hold more than is counted on one page: these figures begin at {local:%H:%M:%S} on "
        f"{local.day} {local:%b}."
    )


def empty_notes(params: Params, window: Window, now: datetime, schedule_id: int | None) -> list[Note]:
    """Why nothing is there, from the most general reason down, with a step that works."""
    if not Schedule.objects.exists():
        demo = ", or run `manage.py aegis demo` to see some collide" if offers("demo") else ""
        form = "admin:aegis_scheduler_schedule_add"
        return [Note(f"No schedules yet. Add one{demo}.", "Add a schedule", view=form)]
    first, latest = rows.latest_tick(schedule_id, before=window.end), rows.latest_tick(schedule_id)
    if latest is None:
        return [_no_attempts(now, schedule_id)]
    show = params.url(at=None, window=None, selected=None, **{"from": None, "to": None})
    if first is None:
        note = Note("Nothing was due before the end of this window.", "Show the latest", show)
    else:
        ago = duration_words((window.end - first).total_seconds())
        show = params.url(at=first + timedelta(seconds=1), window=None, **{"from": None, "to": None})
        note = Note(f"Nothing in this window. The latest tick before it was {ago} before its end.", "Show it", show)
    return [note, *_clear(params, schedule_id)]


def _no_attempts(now: datetime, schedule_id: int | None) -> Note:
    waiting = Schedule.objects.filter(enabled=True, next_fire_at__isnull=False)
    if schedule_id is not None:
        waiting = waiting.filter(pk=schedule_id)
    upcoming = waiting.order_by("next_fire_at").values_list("name", "next_fire_at").first()
    name, at = upcoming or ("", None)
    if at is None:
        return Note("No attempts yet. No next tick is planned: is a beat running, is a schedule enabled?")
    wait = (at - now).total_seconds()
    when = f"in {duration_words(wait)}" if wait > 0 else "due now"
    return Note(f"No attempts yet. Next tick {when} ({name}).")


def _clear(params: Params, schedule_id: int | None) -> list[Note]:
    if schedule_id is None:
        return []
    return [Note("Only one schedule is shown.", "Clear filters", params.url(schedule=None, strategy=None))]
