"""From the file of a soak to stored measurements."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.db import Error as DatabaseError
from django.db import transaction
from django.utils.dateparse import parse_datetime

from scheduler.models import MeasuredCell, MeasuredRun

SCHEMA = "aegis.soak.1"
_CELL = (
    "fault", "strategy", "injected", "bodies_hit", "duplicates", "overlaps", "stale_effects", "missed", "lost",
    "alone", "broken_promises",
)  # fmt: skip
_RUN = ("version", "commit", "seed", "ticks", "seconds", "workers", "beats", "tick_guard", "commit_guard")
_STRATEGY = ("ticks", "takeovers", "takeover_p99_s")


class NotASoak(ValueError):
    """The file is not what ``aegis soak --output`` writes; the message says what is missing."""


def load(text: str) -> tuple[MeasuredRun, bool]:
    """Store the run and its cells, in one transaction; returns it and whether it is new.

    The same file twice is one run. Raises ``NotASoak``.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    if known := MeasuredRun.objects.filter(digest=digest).first():
        return known, False
    told = _read(text)
    try:
        with transaction.atomic():
            run = MeasuredRun.objects.create(digest=digest, measured_at=_instant(told["at"]), **_run(told))
            cells = [MeasuredCell(run=run, **{name: row[name] for name in _CELL}) for row in told["matrix"]]
            MeasuredCell.objects.bulk_create(cells)
    except NotASoak:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, DatabaseError) as wrong:
        raise NotASoak(f"A value is missing or of a wrong kind: {wrong}.") from wrong
    return run, True


def _read(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as wrong:
        raise NotASoak(f"It is not JSON: {wrong}.") from wrong
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        schema = told.get("schema") if isinstance(told, dict) else None
        raise NotASoak(f'Its "schema" is {schema!r}, not {SCHEMA!r}: write it with `aegis soak --output`.')
    return told


def _refuse(word: str) -> None:
    """NaN and infinity: Python reads them, PostgreSQL stores none in JSON, and no figure is one."""
    raise ValueError(f"{word} is not a number of JSON")


def _run(told: dict[str, Any]) -> dict[str, Any]:
    strategies = {
        alias: {name: _figure(figures[name]) for name in _STRATEGY} for alias, figures in told["strategies"].items()
    }
    return {**{name: told[name] for name in _RUN}, "strategies": strategies}


def _figure(value: Any) -> float | None:
    if value is not None and not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _instant(text: str) -> Any:
    found = parse_datetime(text)
    if found is None or found.tzinfo is None or not 2000 < found.year < 9000:
        raise NotASoak(f'"at" is {text!r}, which is not an instant with a zone.')
    return found
