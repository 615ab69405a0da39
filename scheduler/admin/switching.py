"""Enable and disable as verbs; ``scheduler.pausing`` does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest
from django.utils import timezone

from scheduler.admin.pausing import goes_on, next_run
from scheduler.admin.verbs import Row, Verb, counted, names
from scheduler.dashboard.dialog import OptionalReasonForm
from scheduler.models import Schedule
from scheduler.pausing import switch
from scheduler.running import inside


class SwitchVerb(Verb):
    """Whether schedules are wanted at all; subclasses say which way."""

    permission = "change_schedule"
    form: ClassVar[type[forms.Form]] = OptionalReasonForm
    on: ClassVar[bool]

    def title(self, schedules: Sequence[Schedule]) -> str:
        return f"{self.name.capitalize()} {names(schedules)}"

    def rows(self, schedules: Sequence[Schedule], request: HttpRequest) -> list[Row]:
        now, running = timezone.now(), inside({schedule.lock_id for schedule in schedules})
        refused = f"It is {self.name}d already."
        return [
            Row(
                schedule=schedule,
                said=next_run(schedule, now),
                warnings=self._warnings(schedule, now, running.get(schedule.lock_id, [])),
                refused=refused if schedule.enabled is self.on else "",
            )
            for schedule in schedules
        ]

    def _warnings(self, schedule: Schedule, now: datetime, running: list[Any]) -> tuple[str, ...]:
        """What may surprise."""
        raise NotImplementedError

    def act(self, schedule: Schedule, given: dict[str, Any], request: HttpRequest) -> str:
        switch(schedule.name, enabled=self.on, why=given["reason"], who=request.user)
        return f"{self.name.capitalize()}d. {given['reason']}".strip()

    def told(self, done: Sequence[str]) -> str:
        return counted(f"%(n)d schedule was {self.name}d.", f"%(n)d schedules were {self.name}d.", len(done))


class EnableVerb(SwitchVerb):
    name = "enable"
    label = "Enable…"
    on = True
    notes = ("It fires from now on; nothing from before is run.",)

    def _warnings(self, schedule: Schedule, now: datetime, running: list[Any]) -> tuple[str, ...]:
        return ("It is paused, and fires once it is resumed.",) if schedule.is_paused(now) else ()


class DisableVerb(SwitchVerb):
    name = "disable"
    label = "Disable…"
    on = False
    notes = (
        "Nothing new is stored until it is enabled; to stop it for a while, pause it, which asks for a reason.",
        "A run in progress is not stopped.",
    )

    def _warnings(self, schedule: Schedule, now: datetime, running: list[Any]) -> tuple[str, ...]:
        return tuple(goes_on(schedule, running))
