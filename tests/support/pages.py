"""Rows for the pages, in seconds from one noon, and users who may see them."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import Permission, User
from django.urls import reverse

from scheduler.models import Execution, Instance, Schedule, Tick
from tests.support.engine import make_tick

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)
AT = "2027-03-27T12:00:00Z"


def url(page: str, **params: object) -> str:
    return f"{reverse(f'admin:aegis_scheduler_{page}')}?{urlencode(params)}"


def staff(name: str, *codenames: str) -> User:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def ticked(schedule: Schedule, at: float = 0.0, **fields: Any) -> Tick:
    """A tick that is over."""
    return make_tick(schedule, **{"fire_time": moment(at), "state": "closed", "outcome": "executed", **fields})


def ran(tick: Tick, worker: str, start: float, end: float | None, **fields: Any) -> Execution:
    """A body; without an end it runs."""
    known: dict[str, Any] = {
        "tick": tick, "guarded": tick.once_per_tick, "lock_name": tick.lock_name, "lock_alias": tick.lock_alias,
        "lease_id": uuid.uuid4(), "worker": worker, "pid": 7, "began": True, "recorded_at": moment(start),
        "started_at": moment(start), "heartbeat_at": moment(start),
    }  # fmt: skip
    if end is None:
        return Execution.objects.create(**{**known, "state": "running", **fields})
    ended = {"state": "executed", "ended_at": moment(end), "ran": end - start}
    return Execution.objects.create(**{**known, **ended, **fields})


def refused(tick: Tick, worker: str, at: float, state: str = "prevented", **fields: Any) -> Execution:
    return Execution.objects.create(
        tick=tick, guarded=tick.once_per_tick, lock_name=tick.lock_name, lock_alias=tick.lock_alias, state=state,
        worker=worker, recorded_at=moment(at), reason="the name is held by another", **fields,
    )  # fmt: skip


def alive(name: str, kind: str = "worker", *, since: float = -3600, until: float = 0.0, **fields: Any) -> None:
    """An instance whose start and last heartbeat are seconds from noon."""
    Instance.objects.create(
        **{
            "kind": kind,
            "name": name,
            "host": "h",
            "pid": 7,
            "started_at": moment(since),
            "heartbeat_at": moment(until),
            **fields,
        }
    )


def words(html: str) -> str:
    """The page's text, as far as it can be read."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
