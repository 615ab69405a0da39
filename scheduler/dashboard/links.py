"""Where a figure leads: lists of the admin filtered to what it counts, and other pages. No link without the right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from scheduler.charts import Window
from scheduler.dashboard.facts import Key
from scheduler.dashboard.figures import Moment
from scheduler.dashboard.params import stamp

_APP = "aegis_scheduler"
# Filters the list of ticks by the name of a key that has no schedule.
UNSCHEDULED = "unscheduled"

# The page of a collision, narrowed to its schedule where that is named.
Around = Callable[[Moment, int | None], str]


def _nowhere(moment: Moment, schedule_id: int | None = None) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links of one page; an empty text is no link. ``lists`` holds the paths of lists that this user may see."""

    window: Window | None = None
    schedule_id: int | None = None
    lists: dict[str, str] = field(default_factory=dict)
    timeline: str = ""
    workers: str = ""
    around: Around = _nowhere

    def ticks(self, outcomes: str, key: Key | None = None) -> str:
        """The ticks of the window that ended so, of one key or of the page's schedule; commas between words."""
        kept = {"outcome__in" if "," in outcomes else "outcome__exact": outcomes}
        if key is not None and key[0] is None:
            kept[UNSCHEDULED] = key[1]
        return self._list("tick", kept, "", key[0] if key else self.schedule_id)

    def executions(self, states: str) -> str:
        """The executions of the window's ticks in these states, comma separated."""
        return self._list("execution", {"state__in": states}, "tick__", self.schedule_id)

    def execution(self, number: int) -> str:
        """One execution on the timeline."""
        return f"{self.timeline}?selected={number}#selected" if self.timeline else ""

    def schedule(self, number: int | None) -> str:
        """The page of a schedule."""
        path = self.lists.get("schedule", "")
        return f"{path}{number}/" if path and number is not None else ""

    def _list(self, model: str, kept: dict[str, str], prefix: str, schedule_id: int | None) -> str:
        path = self.lists.get(model, "")
        if not path:
            return ""
        if self.window is not None:
            kept |= {
                f"{prefix}fire_time__gte": stamp(self.window.start),
                f"{prefix}fire_time__lt": stamp(self.window.end),
            }
        if schedule_id is not None:
            kept[f"{prefix}schedule__id__exact"] = str(schedule_id)
        return f"{path}?{urlencode(kept, safe=':,')}"


def lists_of(request: HttpRequest, site: AdminSite) -> dict[str, str]:
    """The lists of this site that the user may see."""
    found = {}
    for model in ("tick", "execution", "schedule"):
        if request.user.has_perm(f"{_APP}.view_{model}"):
            try:
                found[model] = reverse(f"admin:{_APP}_{model}_changelist", current_app=site.name)
            except NoReverseMatch:  # a project may keep a list out of its admin
                continue
    return found
