"""The page of alerts: what is open, acknowledged, muted or closed, and whether anybody looks at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count

from scheduler.alerts.channels import title
from scheduler.alerts.rules import RULES
from scheduler.alerts.settings import alert_settings
from scheduler.charts.scale import duration_words
from scheduler.dashboard.notes import Note
from scheduler.dashboard.params import Link, Params, stamp
from scheduler.models import Alert, AlertLook, AlertRule
from scheduler.models.alert import OPEN_FIRST

# Alerts on one page; the newest.
MOST = 100
GLYPHS = {"open": "!", "acknowledged": "✓", "muted": "◌", "closed": "-"}
TONES = {"open": "bad", "acknowledged": "warn", "muted": "mute", "closed": "ok"}
EMPTY = {
    "open": "No alert is open.",
    "acknowledged": "Nobody has acknowledged an alert that still holds.",
    "muted": "No alert is muted.",
    "closed": "No alert was ever closed.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One alert, as it is shown."""

    alert: Alert
    title: str
    glyph: str
    tone: str
    url: str


def context(
    given: Mapping[str, str], now: datetime, path: str, data: str, url_of: Callable[[int], str]
) -> dict[str, Any]:
    """What the template prints. ``path`` is the list's, ``data`` that of the JSON. Three queries."""
    params = Params({name: given[name] for name in ("state",) if name in given})
    state = given.get("state", "open")
    notes = []
    if state not in GLYPHS:
        notes.append(Note(f'state: "{state}" is not one of {", ".join(GLYPHS)}.'))
        state = "open"
    counts = dict(Alert.objects.order_by().values_list("state").annotate(number=Count("pk")))
    found = Alert.objects.filter(state=state).select_related("schedule")[:MOST]
    looks = AlertLook.objects.first()
    return {
        "notes": notes + looking(looks, now),
        "tabs": [
            Link(
                text=f"{Alert.State(key).label} ({counts.get(key, 0):,})",
                url=f"{path}?state={key}",
                current=key == state,
            )
            for key in GLYPHS
        ],
        "rows": [row(alert, url_of(alert.pk)) for alert in found],
        "empty": EMPTY[state],
        "looked": looks,
        "every": alert_settings().every,
        "more": max(0, counts.get(state, 0) - MOST),
        "problems": params.problems,
        "data_url": params.url(data, state=state),
    }


def row(alert: Alert, url: str) -> Row:
    """As it is shown in the list and on its own page."""
    return Row(
        alert=alert, title=title(alert), glyph=GLYPHS[alert.state], tone=TONES[alert.state], url=url
    )  # fmt: skip


def looking(looks: AlertLook | None, now: datetime) -> list[Note]:
    """What a reader must know of the looks: that there are none, or that a rule could not be looked at."""
    every = alert_settings().every
    remedy = "Start a beat, or have cron run: manage.py aegis alerts check."
    if looks is None:
        return [Note(f"Nobody has looked at the rules yet. {remedy}")]
    notes = []
    age = now - looks.looked_at
    if age > timedelta(seconds=max(3 * every, 60)):
        said = duration_words(age.total_seconds())
        notes.append(
            Note(f"Nobody has looked at the rules for {said}: what is shown may be over, and more may hold. {remedy}")
        )
    for line in looks.trouble.splitlines():
        key, _, why = line.partition(": ")
        name = RULES[key].title if key in RULES else key
        notes.append(Note(f"The rule “{name}” could not be looked at, so its alerts stay as they are: {why}"))
    return notes


def rules() -> list[dict[str, Any]]:
    """Every rule, as it is set and by default."""
    stored = {one.key: one for one in AlertRule.objects.all()}
    return [
        {
            "rule": rule,
            "enabled": one.enabled if one else True,
            "threshold": one.threshold if one else None,
            "row": one,
        }
        for key, rule in RULES.items()
        for one in [stored.get(key)]
    ]


def as_json(state: str) -> dict[str, Any]:
    """The alerts behind the page, instants in UTC; ``more``: how many are left out."""
    live = Alert.objects.exclude(state="closed").order_by(*OPEN_FIRST)
    found = Alert.objects.filter(state=state) if state in GLYPHS else live
    looks = AlertLook.objects.first()
    return {
        "schema": "aegis.alerts.1",
        "looked_at": stamp(looks.looked_at) if looks else None,
        "alerts": [
            {
                "id": one.pk, "rule": one.rule, "subject": one.subject, "state": one.state, "message": one.message,
                "count": one.count, "first_seen": stamp(one.first_seen), "last_seen": stamp(one.last_seen),
                "execution": one.execution_id,
            }
            for one in found[:MOST]
        ],
        "more": max(found.count() - MOST, 0),
    }  # fmt: skip
