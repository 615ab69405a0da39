"""Change of strategy as a verb, for one schedule or many; ``scheduler.retargeting`` does it.

Two steps on one page: choose the strategy, then see what changes for each schedule and confirm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest
from django.utils.translation import ngettext

from locks import InvalidLockBackend, lock_backends
from scheduler import releasing, running
from scheduler.admin.verbs import Row, Verb, names
from scheduler.changes import Refused
from scheduler.dashboard.dialog import ReasonForm
from scheduler.dashboard.latest import p95_of
from scheduler.held import excludes
from scheduler.models import Execution, LockName, Schedule, Tick
from scheduler.retargeting import retarget, ttl_problem
from scheduler.states import OPEN_TICKS
from scheduler.strategy_lines import lines, weaker

IDLE, NOW = "idle", "now"


class RetargetForm(ReasonForm):
    """``to``: the strategy; ``sure`` is asked for where "now" meets a lock that is held."""

    to = forms.CharField(max_length=100, widget=forms.HiddenInput)
    apply = forms.ChoiceField(
        label="Apply",
        initial=IDLE,
        widget=forms.RadioSelect,
        choices=[(IDLE, "When idle: each follows as soon as nothing is open under its lock name"), (NOW, "Now")],
    )
    sure = forms.BooleanField(
        required=False,
        label="With “now”: two runs can overlap where a run is inside, and I accept that",
    )
    field_order = ("apply", "sure", "reason")

    def __init__(self, *args: Any, held: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.held = held
        if not held:
            del self.fields["sure"]

    def clean_to(self) -> str:
        to: str = self.cleaned_data["to"]
        if to not in lock_backends.aliases():
            raise forms.ValidationError(f'There is no strategy "{to}" in LOCKS.')
        return to

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("apply") == NOW and self.held and not cleaned.get("sure"):
            self.add_error("sure", "A lock is held now. Say that you accept an overlap, or choose “when idle”.")
        return cleaned


class RetargetVerb(Verb):
    name = "strategy"
    permission = "change_strategy"
    label = "Change strategy…"
    form: ClassVar[type[forms.Form]] = RetargetForm
    template = "scheduler/retarget.html"
    head = "Old → new"
    notes = (
        "Two strategies cannot see each other's leases, so a change waits until nothing is open under the lock name.",
        "Schedules that share a lock name share its strategy and change together.",
    )

    def title(self, schedules: Sequence[Schedule]) -> str:
        return f"Change strategy of {names(schedules)}"

    def button(self, schedules: Sequence[Schedule]) -> str:
        return f"Change {names(schedules)}"

    def make_form(self, request: HttpRequest, schedules: Sequence[Schedule]) -> forms.Form:
        held = bool(running.inside({schedule.lock_id for schedule in schedules}))
        if request.method == "POST":
            return RetargetForm(request.POST, held=held)
        return RetargetForm(initial={"to": chosen(request), "apply": IDLE}, held=held)

    def rows(self, schedules: Sequence[Schedule], request: HttpRequest) -> list[Row]:
        to = chosen(request)
        inside = running.inside({schedule.lock_id for schedule in schedules})
        p95 = p95_of([schedule.pk for schedule in schedules]) if to else {}
        return [
            self._row(schedule, to, inside.get(schedule.lock_id, []), p95.get(schedule.pk)) for schedule in schedules
        ]

    def _row(self, schedule: Schedule, to: str, inside: list[Execution], p95: float | None) -> Row:
        old = schedule.lock.alias_wanted
        waits = [f"held now by {row.worker}: will switch after this run" for row in inside[:1]]
        if not to:
            return Row(schedule=schedule, said=old, warnings=tuple(waits))
        if old == to:
            return Row(schedule=schedule, said=f"{old} → {to}", refused=f"It has strategy {to} already.")
        refused = _refusal(schedule, to)
        warnings = [*waits, *weaker(schedule.lock.alias_in_force or old, to), *_near(schedule, to, p95)]
        return Row(schedule=schedule, said=f"{old} → {to}", warnings=tuple(warnings), refused=refused)

    def context(self, schedules: Sequence[Schedule], request: HttpRequest) -> dict[str, Any]:
        to = chosen(request)
        shared = Schedule.objects.filter(lock__in={schedule.lock_id for schedule in schedules})
        others = shared.exclude(pk__in=[schedule.pk for schedule in schedules]).order_by("name")
        return {
            "to": to,
            "strategy_lines": lines(),
            "chosen_alias": to,
            "others": list(others.values_list("name", flat=True)[:50]),
            "store": _store(to) if to else "",
        }

    def act(self, schedule: Schedule, given: dict[str, Any], request: HttpRequest) -> str:
        to, now = given["to"], given["apply"] == NOW
        lock = LockName.objects.get(pk=schedule.lock_id)
        if lock.alias_wanted == to and lock.alias_wanted != schedule.lock.alias_wanted:
            return f"Strategy {to}: changed with another schedule of the same lock name"
        retarget(schedule.name, to, now=now, why=given["reason"], who=request.user)
        if now:
            return f"Strategy {schedule.lock.alias_wanted} → {to}, at once"
        waits = Tick.objects.filter(lock_name=schedule.lock_id, state__in=OPEN_TICKS).exists()
        return f"Strategy {schedule.lock.alias_wanted} → {to}, {'waits for its run to end' if waits else 'when idle'}"

    def told(self, done: Sequence[str]) -> str:
        """``3 changed, 1 waits for its run to end.``"""
        waiting = sum(1 for said in done if said.endswith("waits for its run to end"))
        changed = len(done) - waiting
        parts = [f"{changed} changed"] if changed or not waiting else []
        if waiting:
            said = ngettext("%(n)d waits for its run to end", "%(n)d wait for their runs to end", waiting)
            parts.append(said % {"n": waiting})
        return ", ".join(parts) + "."


def chosen(request: HttpRequest) -> str:
    """The strategy that was picked, if it is one of LOCKS."""
    to = (request.POST if request.method == "POST" else request.GET).get("to", "")
    return to if to in lock_backends.aliases() else ""


def _refusal(schedule: Schedule, to: str) -> str:
    try:
        return ttl_problem(lock_backends[to], schedule.task, schedule.ttl)
    except InvalidLockBackend as problem:
        return str(problem)


def _near(schedule: Schedule, to: str, p95: float | None) -> list[str]:
    """A lease that its runs would nearly fill, where nothing renews it."""
    try:
        backend = lock_backends[to]
    except InvalidLockBackend:
        return []
    ttl = schedule.ttl or backend.ttl
    if p95 is None or not backend.exclusive or backend.session_bound or backend.renewable or p95 * 2 <= ttl:
        return []
    return [f"lease {ttl:g} s < p95 {p95:.1f} s x 2 and not renewed: raise the TTL to {2 * p95:.0f} s first"]


def _store(to: str) -> str:
    """Whether the store of the new strategy answers; one that holds nothing has none."""
    if not excludes(to):
        return ""
    try:
        releasing.look(to, "aegis.store-check")
    except (releasing.StoreUnreachable, Refused) as why:
        return f"{to}: unreachable ({why}). Runs would be blocked until it answers."
    return f"{to}: reachable."
