"""The list of schedules: its columns, its filters, and the facts of the page's rows in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import F, FloatField, Func, Q, QuerySet, Value
from django.db.models.lookups import GreaterThan
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from locks import lock_backends
from scheduler.admin.private_lists import PrivateList
from scheduler.charts.scale import duration_words
from scheduler.charts.sparkline import sparkline
from scheduler.dashboard.headroom import ENOUGH
from scheduler.dashboard.notes import cut_text
from scheduler.dashboard.schedule_facts import Facts, facts_of, overlapping
from scheduler.held import excludes
from scheduler.models import Schedule
from scheduler.notes import noted, notes
from scheduler.registry import declared_names

GLYPHS = {"Active": "▶", "Paused": "❙❙", "Disabled": "○", "Broken": "✕", "Finished": "■", "Overdue": "!"}
TONES = {"Active": "ok", "Paused": "mute", "Disabled": "mute", "Broken": "bad", "Finished": "mute", "Overdue": "warn"}
OVERDUE = 10.0  # seconds after a fire time that no beat has stored
NOTHING = Q(pk__in=())


def word_of(schedule: Schedule, now: datetime) -> str:
    """The state as the pages say it; Overdue: active, and no beat has stored its fire time in time."""
    word = schedule.state_word(now)
    at = schedule.next_fire_at
    if word == "Active" and at is not None and (now - at).total_seconds() > OVERDUE + schedule.jitter_seconds:
        return "Overdue"
    return word


class Seconds(Func):
    """A duration as a number, so that no sum of instants and seconds can leave the calendar."""

    template = "EXTRACT(EPOCH FROM %(expressions)s)"
    output_field = FloatField()


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(word.lower(), word) for word in GLYPHS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        now = timezone.now()
        paused = Q(paused_at__isnull=False) & (Q(paused_until__isnull=True) | Q(paused_until__gt=now))
        on = Q(enabled=True, broken_reason="") & ~paused
        late = Seconds(Value(now) - F("next_fire_at"))
        overdue = on & Q(
            GreaterThan(late, F("jitter_seconds") + OVERDUE), exhausted=False, next_fire_at__isnull=False
        )
        wanted = {
            "active": on & Q(exhausted=False) & ~overdue,
            "overdue": overdue,
            "paused": paused & Q(enabled=True, broken_reason=""),
            "disabled": Q(enabled=False, broken_reason=""),
            "broken": ~Q(broken_reason=""),
            "finished": on & Q(exhausted=True),
        }
        chosen = self.value()
        return queryset if chosen is None else queryset.filter(wanted.get(chosen, NOTHING))


class StrategyFilter(admin.SimpleListFilter):
    title = "strategy"
    parameter_name = "strategy"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in lock_backends.aliases()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        return queryset if self.value() is None else queryset.filter(lock__alias_wanted=self.value())


class OverlapFilter(admin.SimpleListFilter):
    title = "overlaps (24 h)"
    parameter_name = "overlaps"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Has overlaps")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        if self.value() is None:
            return queryset
        return queryset.filter(pk__in=overlapping(timezone.now()) if self.value() == "yes" else ())


class FactsChangeList(ChangeList):
    """Asks for the facts of the page's rows together, and hands them to the rows with what their owners should know.

    ``cut``: what was not counted.
    """

    cut = ""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        now = timezone.now()
        rows: list[Any] = list(self.result_list)
        facts, declared = facts_of(rows, now), declared_names()
        for row in rows:
            row.facts, row.told = facts[row.pk], notes(row, now, declared)
            if start := row.facts.counted_from:
                self.cut = cut_text(start)
        self.result_list = rows


def _column(description: str, ordering: Any = None) -> Callable[[Any], Any]:
    return admin.display(description=description, ordering=ordering)


class QueueFilter(admin.AllValuesFieldListFilter):
    """The queues that there are; a schedule without one has its task's, which needs a name in the list as well."""

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield choice if str(choice["display"]) else {**choice, "display": "of the task"}


class ListingMixin(PrivateList):
    """Columns in the order in which they are read: what, when, how it went, how it is guarded."""

    list_display = (
        "state", "linked_name", "when", "zone", "next_run", "latest", "last_outcome", "guarded_by", "met",
        "headroom",
    )  # fmt: skip
    list_display_links = None
    list_filter = (
        StateFilter, StrategyFilter, OverlapFilter, ("time_zone", admin.AllValuesFieldListFilter),
        ("queue", QueueFilter),
    )  # fmt: skip
    list_select_related = ("lock",)
    list_per_page = 50
    ordering = (F("next_fire_at").asc(nulls_last=True), "name")
    search_fields = ("name", "task", "notes", "lock__name")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return FactsChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        return noted(super().get_queryset(request))

    @_column("state")
    def state(self, schedule: Schedule) -> str:
        """The word, and below it what its owner should know."""
        word = word_of(schedule, timezone.now())
        told: list[str] = getattr(schedule, "told", [])
        lines = format_html_join("", "<br><small>{}</small>", ((said,) for said in told))
        mark = '<span class="aegis-state aegis-state-{}"><span aria-hidden="true">{}</span> {}</span>{}'
        return format_html(mark, TONES[word], GLYPHS[word], word, lines)

    @_column("name", "name")
    def linked_name(self, schedule: Schedule) -> str:
        page = reverse("admin:aegis_scheduler_schedule_page", args=[schedule.pk], current_app=self.admin_site.name)
        form = reverse("admin:aegis_scheduler_schedule_change", args=[schedule.pk], current_app=self.admin_site.name)
        said = '<a href="{}"><strong>{}</strong></a> <a class="aegis-edit" href="{}" aria-label="Edit {}">✎</a>'
        return format_html(said, page, schedule.name, form, schedule.name)

    @_column("schedule")
    def when(self, schedule: Schedule) -> str:
        try:
            said = schedule.recurrence().explain()
        except ValueError as problem:
            return str(problem)
        if schedule.cron_expression:
            return format_html("{}<br><code>{}</code>", said, schedule.cron_expression)
        return said

    @_column("zone", "time_zone")
    def zone(self, schedule: Schedule) -> str:
        return schedule.time_zone

    @_column("next run (UTC)", "next_fire_at")
    def next_run(self, schedule: Schedule) -> str:
        at, now = schedule.next_fire_at, timezone.now()
        if at is None or word_of(schedule, now) not in ("Active", "Overdue"):
            return "-"
        text = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
        left = (at - now).total_seconds()
        away = f"in {duration_words(left)}" if left >= 0 else f"due {duration_words(-left)} ago"
        said = '<time datetime="{}">{}</time><br><small>{}</small>'
        return format_html(said, at.isoformat(), text, away)

    @_column("last 60 ticks")
    def latest(self, schedule: Schedule) -> str:
        words = [tick.word for tick in _facts(schedule).ticks]
        return render_to_string("scheduler/charts/_sparkline.html", {"line": sparkline(words)})

    @_column("last (UTC)")
    def last_outcome(self, schedule: Schedule) -> str:
        tick = _facts(schedule).last
        if tick is None:
            return "-"
        said = '{}<br><small><time datetime="{}">{}</time></small>'
        return format_html(said, tick.look.label, tick.fire_time.isoformat(), f"{tick.fire_time:%H:%M:%S}")

    @_column("strategy", "lock__alias_wanted")
    def guarded_by(self, schedule: Schedule) -> str:
        """The strategy and the tick guard: two switches, so both are said."""
        lock = schedule.lock
        strategy = lock.alias_wanted
        if lock.alias_in_force and lock.alias_in_force != lock.alias_wanted:
            strategy = f"{lock.alias_in_force} → {lock.alias_wanted} when idle"
        guard = "tick guard" if schedule.once_per_tick else "no tick guard"
        if not excludes(lock.alias_wanted):
            mark = '<span class="aegis-state aegis-state-warn">{} <span aria-hidden="true">!</span></span>'
            return format_html(mark + "<br><small>no lock, {}</small>", strategy, guard)
        return format_html("{}<br><small>{}</small>", strategy, guard)

    @_column("overlaps / prevented 24 h")
    def met(self, schedule: Schedule) -> str:
        facts = _facts(schedule)
        tone = "bad" if facts.overlaps else "warn" if facts.possible else "mute"
        possibly = format_html("<br><small>{} possible</small>", facts.possible) if facts.possible else ""
        said = '<span class="aegis-state aegis-state-{}">{}</span> / {}{}'
        return format_html(said, tone, facts.overlaps, facts.prevented, possibly)

    @_column("headroom")
    def headroom(self, schedule: Schedule) -> str:
        """Of the lease, after nineteen runs of twenty; one that is renewed may be outlived."""
        return headroom_words(_facts(schedule))


def headroom_words(facts: Facts) -> str:
    """``71 %``, with a word where it is tight."""
    share = facts.headroom
    if facts.lease is None:
        return "n/a"
    if share is None:
        return "-"
    if facts.lease.renewed:
        return f"{share:.0%}" if share >= 0 else "renewed"
    if share < ENOUGH:
        return format_html(
            '<span class="aegis-state aegis-state-warn">{} !</span><br><small>tight</small>', f"{share:.0%}"
        )
    return f"{share:.0%}"


def _facts(schedule: Any) -> Facts:
    """Those that the page's list has asked for."""
    found: Facts = getattr(schedule, "facts", None) or Facts()
    return found
