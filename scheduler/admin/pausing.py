"""Pause and resume as verbs; ``scheduler.pausing`` does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest
from django.utils import timezone

from scheduler.admin.verbs import Row, Verb, counted, names
from scheduler.charts.scale import duration_words
from scheduler.dashboard.dialog import OptionalReasonForm, ReasonForm
from scheduler.editing.instants import InstantField
from scheduler.models import Schedule
from scheduler.pausing import pause, resume
from scheduler.running import inside


class PauseForm(ReasonForm):
    """Why, and until when; both are kept in the change history."""

    until = InstantField(
        required=False,
        label="Until (UTC)",
        help_text="Empty: until somebody resumes it.",
    )


class PauseVerb(Verb):
    name = "pause"
    permission = "pause_schedule"
    label = "Pause…"
    form: ClassVar[type[forms.Form]] = PauseForm
    notes = (
        "Nothing new is stored while it is paused, and nothing of that time is caught up afterwards.",
        "A run in progress is not stopped.",
    )

    def title(self, schedules: Sequence[Schedule]) -> str:
        return f"Pause {names(schedules)}"

    def rows(self, schedules: Sequence[Schedule], request: HttpRequest) -> list[Row]:
        now, running = timezone.now(), inside({schedule.lock_id for schedule in schedules})
        return [self._row(schedule, now, running.get(schedule.lock_id, [])) for schedule in schedules]

    @staticmethod
    def _row(schedule: Schedule, now: datetime, running: list[Any]) -> Row:
        warnings = goes_on(schedule, running)
        if schedule.is_paused(now):
            warnings.append(f"It is paused already by {schedule.paused_by or 'somebody'}; this replaces that pause.")
        return Row(schedule=schedule, said=next_run(schedule, now), warnings=tuple(warnings))

    def act(self, schedule: Schedule, given: dict[str, Any], request: HttpRequest) -> str:
        pause(schedule.name, why=given["reason"], until=given["until"], who=request.user)
        return f"Paused: {given['reason']}"

    def told(self, done: Sequence[str]) -> str:
        return counted("%(n)d schedule was paused.", "%(n)d schedules were paused.", len(done))


class ResumeVerb(Verb):
    name = "resume"
    permission = "pause_schedule"
    label = "Resume…"
    form: ClassVar[type[forms.Form]] = OptionalReasonForm
    notes = ("Nothing is run for the time of the pause.",)

    def title(self, schedules: Sequence[Schedule]) -> str:
        return f"Resume {names(schedules)}"

    def rows(self, schedules: Sequence[Schedule], request: HttpRequest) -> list[Row]:
        now = timezone.now()
        return [
            Row(
                schedule=schedule,
                said=next_run(schedule, now),
                refused="" if schedule.paused_at else "It is not paused, so there is nothing to resume.",
            )
            for schedule in schedules
        ]

    def act(self, schedule: Schedule, given: dict[str, Any], request: HttpRequest) -> str:
        stored = resume(schedule.name, why=given["reason"], who=request.user)
        return f"Resumed. {next_run(stored, timezone.now()).capitalize()}; nothing is run for the pause."

    def told(self, done: Sequence[str]) -> str:
        said = counted("%(n)d schedule was resumed", "%(n)d schedules were resumed", len(done))
        return f"{said}; nothing is run for the pause."


def goes_on(schedule: Schedule, running: Iterable[Any]) -> list[str]:
    """Of the executions that are inside, a sentence about each of the schedule's own."""
    own = [row for row in running if row.tick.schedule_id == schedule.pk]
    return [f"{row.worker} is inside since {row.started_at:%H:%M:%S} UTC and goes on." for row in own]


def next_run(schedule: Schedule, now: datetime) -> str:
    """``next run 12:05:00 UTC, in 29 s``, as its recurrence names it."""
    try:
        at = schedule.recurrence().next_after(now)
    except ValueError:
        return "its recurrence cannot be read"
    if at is None:
        return "it has no next run"
    day = "" if at.date() == now.date() else f"{at:%Y-%m-%d} "
    return f"next run {day}{at:%H:%M:%S} UTC, in {duration_words((at - now).total_seconds())}"
