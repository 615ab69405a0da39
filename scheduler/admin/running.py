"""Run now as a verb, and the page that says what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import uuid4

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_safe

from scheduler import releasing, running
from scheduler.admin.verbs import Row, Verb, VerbsMixin, counted, names
from scheduler.dashboard import dialog
from scheduler.dashboard.header import header
from scheduler.editing.instants import InstantField
from scheduler.held import excludes
from scheduler.models import Schedule, Tick
from scheduler.models.tick import Overlap


class RunForm(dialog.OptionalReasonForm):
    """``key`` is new with each form: sent twice, it asks for one run."""

    key = forms.UUIDField(widget=forms.HiddenInput)
    if_held = forms.ChoiceField(
        required=False,
        label="If the lock is held",
        choices=[
            ("", "As the schedule says"),
            (Overlap.SKIP, "Skip: do not run"),
            (Overlap.QUEUE_ONE, "Wait for the end of that run, then run"),
        ],
    )
    fire_time = InstantField(
        required=False,
        label="Again for the fire time of (UTC)",
        help_text="Empty: it is a run of now. A past one that failed or was missed is run again as that one, with its"
        " scheduled_for and the keys of its once_key.",
    )
    field_order = ("if_held", "reason", "fire_time")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["key"].initial = uuid4


class RunVerb(Verb):
    name = "run"
    permission = "run_schedule"
    label = "Run now…"
    form: ClassVar[type[forms.Form]] = RunForm
    notes = (
        "It runs under the same lock as any other run: while another is inside, this one does not start.",
        "A paused or disabled schedule is run too, this once.",
    )

    def title(self, schedules: Sequence[Schedule]) -> str:
        return f"Run {names(schedules)} now"

    def rows(self, schedules: Sequence[Schedule], request: HttpRequest) -> list[Row]:
        now, inside = timezone.now(), running.inside({schedule.lock_id for schedule in schedules})
        alone = len(schedules) == 1
        return [self._row(schedule, now, inside.get(schedule.lock_id, []), alone) for schedule in schedules]

    def _row(self, schedule: Schedule, now: Any, inside: list[Any], alone: bool) -> Row:
        held = [
            f"{'Inside:' if row.token is None else 'Held by'} {row.worker} since {row.started_at:%H:%M:%S} UTC"
            f"{'' if row.token is None else f' (token {row.token})'}, {row.tick.schedule_name or row.tick.task}"
            for row in inside
        ]
        if not held and alone:
            held = [store_says(schedule)]
        warnings = []
        unlocked = [
            alias for alias in (schedule.lock.alias_in_force, schedule.lock.alias_wanted) if not excludes(alias)
        ]
        if unlocked:
            warnings.append(f"Strategy {unlocked[0]}: nothing keeps it from running beside another run.")
        if schedule.is_paused(now) or not schedule.enabled:
            warnings.append(f"It is {schedule.state_word(now).lower()}; this run happens all the same.")
        return Row(schedule=schedule, said="\n".join(held) or "No run is inside", warnings=tuple(warnings))

    def act(self, schedule: Schedule, given: dict[str, Any], request: HttpRequest) -> str:
        tick = running.ask(
            schedule.name, key=str(given["key"]), who=request.user, why=given["reason"], if_held=given["if_held"],
            fire_time=given["fire_time"],
        )  # fmt: skip
        return f"Run by hand: tick {tick.pk}"

    def told(self, done: Sequence[str]) -> str:
        return counted("%(n)d run was asked for.", "%(n)d runs were asked for.", len(done))

    def after(self, pages: VerbsMixin, schedules: Sequence[Schedule], done: Sequence[str]) -> str:
        if len(schedules) != 1 or not done:
            return ""
        return pages.path_to("ran", schedules[0].pk, done[0].rpartition(" ")[2])


def store_says(schedule: Schedule) -> str:
    """Who holds the lock, by its store, where no execution says so."""
    alias = schedule.lock.alias_in_force or schedule.lock.alias_wanted
    try:
        info = releasing.look(alias, schedule.lock_id)
    except releasing.StoreUnreachable:
        return f"{alias}: unreachable, so it is not known who holds the lock; the run would be blocked"
    return "The lock is free" if info is None else f"Held by {info.holder} (no execution)"


class RanMixin(VerbsMixin):
    """The page of one run that was asked for."""

    def get_urls(self) -> list[URLPattern]:
        ran = self.admin_site.admin_view(self.ran_view)
        return [path("<int:pk>/ran/<int:tick>/", ran, name="aegis_scheduler_schedule_ran"), *super().get_urls()]

    @method_decorator(require_safe)
    def ran_view(self: admin.ModelAdmin, request: HttpRequest, pk: int, tick: int) -> HttpResponse:
        """How it stands now; nothing here waits for it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = (
            Tick.objects.filter(pk=tick, schedule_id=pk).exclude(manual_key=None).select_related("schedule").first()
        )
        if found is None or found.schedule is None:
            raise Http404(f"There is no run by hand {tick} of schedule {pk}.")
        assert isinstance(self, RanMixin)
        return dialog.render(
            self,
            request,
            "scheduler/ran.html",
            title=f"Run of {found.schedule.name} by hand",
            crumbs=self.crumbs([found.schedule]),
            tick=found,
            schedule=found.schedule,
            standing=running.standing(found),
            header=header(),
            back_url=self.path_to("page", pk),
        )
