"""The locks page: who holds what now, in every store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from scheduler.charts.scale import duration_words
from scheduler.held import HEALTHY, LATE, ORPHAN, OTHER, Held, Locks
from scheduler.models import LockRelease

RECENT = 5  # releases shown below
BAR = 64  # pixels
GLYPHS = {HEALTHY: "✓", LATE: "!", ORPHAN: "✕", OTHER: "○"}
TONES = {HEALTHY: "ok", LATE: "warn", ORPHAN: "bad", OTHER: "mute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One held name as it is shown."""

    held: Held
    glyph: str
    tone: str
    expires_in: str
    bar: int
    age: str
    release_url: str

    @property
    def expires_at(self) -> datetime | None:
        """When it ends unless renewed."""
        return self.held.expires_at


def row_of(held: Held, now: datetime, release_path: str) -> Row:
    """``release_path``: of the page that asks; empty where this user may not release."""
    left, info = held.left, held.info
    query = urlencode({"alias": info.alias, "name": info.name, "lease": info.lease_id or ""})
    age = (
        ""
        if info.acquired_at is None
        else f"{duration_words(max(0.0, (now - info.acquired_at).total_seconds()))} ago"
    )
    return Row(
        held=held,
        glyph=GLYPHS[held.state],
        tone=TONES[held.state],
        expires_in="" if left is None else f"in {max(0, round(left))} s",
        bar=BAR if left is None else max(0, min(BAR, round(BAR * left / held.ttl))),
        age=age,
        release_url=f"{release_path}?{query}" if release_path else "",
    )


def context(found: Locks, release_path: str) -> dict[str, Any]:
    """What the template shows."""
    return {
        "now": found.now,
        "rows": [row_of(held, found.now, release_path) for held in found.held],
        "unread": found.unread,
        "unlocked": found.unlocked,
        "bar": BAR,
        "releases": LockRelease.objects.all()[:RECENT],
    }


def as_json(found: Locks) -> dict[str, Any]:
    """The same for programs; instants in UTC, ISO 8601."""
    return {
        "schema": 1,
        "now": found.now.isoformat(),
        "locks": [lock_json(held) for held in found.held],
        "unreachable": [{"alias": one.alias, "why": one.why} for one in found.unread],
        "running_without_lock": [
            {"execution": row.pk, "lock_name": row.lock_name, "alias": row.lock_alias, "worker": row.worker}
            for row in found.unlocked
        ],
    }


def lock_json(held: Held) -> dict[str, Any]:
    """One held name."""
    info = held.info
    return {
        "name": info.name,
        "alias": info.alias,
        "lease": str(info.lease_id) if info.lease_id else None,
        "holder": held.worker,
        "schedule": held.schedule,
        "execution": held.execution.pk if held.execution else None,
        "token": held.token,
        "acquired_at": info.acquired_at.isoformat() if info.acquired_at else None,
        "expires_in": held.left,
        "state": held.state,
        "why": held.why,
    }
