"""What a page is asked for: window, filters and a frozen "now", all in its URL, so that it can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django import forms
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from scheduler.charts import Window
from scheduler.models import Schedule
from scheduler.recurrence_rules import YEARS

# Every parameter that a page knows; others are not repeated in its links.
KNOWN = ("window", "from", "to", "schedule", "strategy", "outcome", "lanes", "at", "selected")
SPANS = {"5m": 300, "1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
LONGEST = timedelta(days=7)
SHORTEST = timedelta(seconds=1)
# Of the charts, in pixels: beside the admin's sidebar on a laptop.
WIDTH = 900
# Schedules offered in a filter.
MOST_CHOICES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One of several links of which one is where we are."""

    text: str
    url: str
    current: bool = False


@dataclass(slots=True)
class Params:
    """The parameters of one request, and what is wrong with them."""

    given: Mapping[str, str]
    problems: list[str] = field(default_factory=list)

    def url(self, path: str = "", anchor: str = "", /, **changes: object) -> str:
        """A link that keeps these parameters but for ``changes``; None takes one out."""
        kept: dict[str, object] = {name: self.given[name] for name in KNOWN if self.given.get(name)}
        kept |= changes
        query = urlencode([(n, stamp(v)) for n, v in kept.items() if v is not None], safe=":")
        return (path if path and not query else f"{path}?{query}") + (f"#{anchor}" if anchor else "")

    def instant(self, name: str) -> datetime | None:
        """A parameter as an instant; one without an offset is local time. A bad one is told, and None."""
        text = self.given.get(name, "").strip()
        if not text:
            return None
        try:
            found = parse_datetime(text)
        except ValueError:
            found = None
        if found is None or found.year not in YEARS:
            self.problems.append(f'{name}: "{text}" is not an instant; write it as 2027-03-27T12:00:00Z.')
            return None
        return timezone.make_aware(found) if timezone.is_naive(found) else found

    def number(self, name: str) -> int | None:
        """A parameter as a row's number; a bad one is told, and None."""
        text = self.given.get(name, "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            self.problems.append(f'{name}: "{text}" is not a number.')
            return None
        return int(text)


def stamp(value: object) -> str:
    """As it stands in a URL: instants in UTC, short."""
    if isinstance(value, datetime):
        utc = value.astimezone(UTC)
        return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds").replace("+00:00", "Z")
    return str(value)


def span_links(params: Params, chosen: str) -> list[Link]:
    """The choice of windows, each a link."""
    return [Link(text=name, url=params.url(window=name, selected=None), current=name == chosen) for name in SPANS]


def shortest_span(latest: datetime | None, now: datetime) -> str:
    """The shortest window that holds the latest tick; a day where there is none in the longest."""
    for name, seconds in SPANS.items():
        if latest is not None and latest >= now - timedelta(seconds=seconds):
            return name
    return "24h"


def last(seconds: float, now: datetime) -> Window:
    """The window that ends now."""
    return Window(start=now - timedelta(seconds=seconds), end=now)


class ScheduleFilter(forms.Form):
    """One schedule or all; a form, so that it works without a script and tells what is wrong."""

    schedule = forms.ChoiceField(
        required=False,
        error_messages={"invalid_choice": "There is no schedule %(value)s. Choose one of the list."},
    )

    def __init__(self, params: Params) -> None:
        super().__init__({name: params.given.get(name, "") for name in self.base_fields}, auto_id="filter-%s")
        rows = Schedule.objects.order_by("name").values_list("pk", "name")[:MOST_CHOICES]
        self.names = {str(pk): name for pk, name in rows}
        if asked := self._beyond(params):
            self.names |= {str(pk): name for pk, name in Schedule.objects.filter(pk=asked).values_list("pk", "name")}
        choice = self.fields["schedule"]
        assert isinstance(choice, forms.ChoiceField)
        choice.choices = [("", "All schedules"), *self.names.items()]

    def _beyond(self, params: Params) -> int | None:
        """The one that is asked for, where there are too many to offer it."""
        asked = params.given.get("schedule", "")
        known = len(self.names) < MOST_CHOICES or asked in self.names
        return None if known else Params({"schedule": asked}).number("schedule")

    @property
    def schedule_id(self) -> int | None:
        """The schedule that was chosen."""
        chosen = self.cleaned_data.get("schedule") if self.is_valid() or hasattr(self, "cleaned_data") else ""
        return int(chosen) if chosen else None
