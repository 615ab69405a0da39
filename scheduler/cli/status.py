"""``aegis status``: is anything wrong now? The fleet, the catalog, 24 hours, and who holds what."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from scheduler import held
from scheduler.cli._table import table
from scheduler.dashboard.header import Header, header
from scheduler.dashboard.locks_page import lock_json
from scheduler.dashboard.notes import cut_text
from scheduler.metrics import exposition
from scheduler.overview import Overview, overview

HELP = "What the overview says, in words, and every held lock; exit 69: the database or a store does not answer."

UNAVAILABLE = 69


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json", "prometheus"), default="table")


def run(command: BaseCommand, *, format: str, **_: Any) -> int:
    strip, found, locks = header(), overview(), held.locks()
    status = UNAVAILABLE if locks.unread else 0
    if format == "prometheus":
        command.stdout.write(exposition(strip, found, locks), ending="")
        return status
    if format == "json":
        command.stdout.write(json.dumps(_json(strip, found, locks, status), indent=2))
        return status
    command.stdout.write("\n".join(f"{name:16}{said}" for name, said in _lines(strip, found, locks)) + "\n")
    rows = [(one.info.name, one.info.alias, one.worker, one.token, one.state) for one in locks.held]
    command.stdout.write(
        table(("LOCK", "STRATEGY", "HOLDER", "TOKEN", "STATE"), rows) if rows else "No lock is held."
    )
    for one in locks.unread:
        command.stderr.write(f"{one.alias}: unreachable, locks unknown: {one.why}")
    return status


def _json(strip: Header, found: Overview, locks: held.Locks, status: int) -> dict[str, Any]:
    return {
        "schema": 1,
        "now": strip.now.isoformat(),
        "beats": strip.beats,
        "beat_heard_at": strip.beat_heard_at.isoformat() if strip.beat_heard_at else None,
        "workers": strip.workers,
        "workers_silent": strip.workers_silent,
        **asdict(found),
        "counted_from": found.counted_from.isoformat() if found.counted_from else None,
        "locks": [lock_json(one) for one in locks.held],
        "unreachable": [one.alias for one in locks.unread],
        "running_without_lock": len(locks.unlocked),
        "exit_status": status,
    }


def _lines(strip: Header, found: Overview, locks: held.Locks) -> list[tuple[str, str]]:
    heard = f"heard {strip.beat_age} ago" if strip.beat_heard_at else "never heard"
    states = ", ".join(f"{number} {word.lower()}" for word, number in found.schedules.items()) or "none"
    outcomes = ", ".join(f"{number} {word}" for word, number in found.outcomes.items()) or "none"
    return [
        ("Beats", f"{strip.beats} alive, {heard}"),
        ("Workers", f"{strip.workers} alive" + (f", {strip.workers_silent} silent" if strip.workers_silent else "")),
        ("Schedules", states),
        ("Ticks, 24 h", outcomes),
        ("Overlaps, 24 h", f"{found.overlaps} proven, {found.possible_overlaps} possible"),
        ("Missed, 24 h", f"{found.missed_fire_times} fire times"),
        *([("", cut_text(found.counted_from))] if found.counted_from else []),
        ("Running", f"{found.running}" + (f", {len(locks.unlocked)} without a lock" if locks.unlocked else "")),
    ]
