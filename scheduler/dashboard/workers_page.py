"""Workers and beats: is the fleet alive, does it run one version, do its clocks agree?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locks import InvalidLockBackend, lock_backends
from scheduler.dashboard.fleet import Process, processes
from scheduler.dashboard.header import Header, header, patience
from scheduler.dashboard.links import Links
from scheduler.dashboard.notes import Note
from scheduler.dashboard.params import Params, stamp

# Of the shortest lease: an offset of a clock beyond this share deserves a sentence.
MUCH = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The processes that are shown; ``hidden`` more are gone for longer than a quarter of an hour."""

    params: Params
    header: Header
    processes: list[Process]
    hidden: int
    everyone: bool
    notes: list[Note]


def report(given: Mapping[str, str]) -> Report:
    """Read the fleet; whoever is gone for long is behind ``?gone=1``."""
    params, strip = Params(given), header()
    everyone = given.get("gone") == "1"
    found, hidden = processes(alive=patience(), everyone=everyone)
    return Report(
        params=params,
        header=strip,
        processes=found,
        hidden=hidden,
        everyone=everyone,
        notes=list(_notes(strip, found)),
    )


def _notes(head: Header, found: Sequence[Process]) -> Iterator[Note]:
    if not head.beats:
        yield Note("No beat is alive: no ticks are made. Start one: celery -A yourproject beat, without -S")
    if not head.workers:
        yield Note("No worker is alive: nobody takes what is due. Start one: celery -A yourproject worker")
    if len(head.versions) > 1:
        yield Note(f"More than one code version is alive: {', '.join(head.versions)}. Restart the older processes.")
    shortest = min((_ttl(alias) for alias in lock_backends.aliases()), default=float("inf"))
    for one in found:
        if not one.dimmed and one.clock_offset is not None and abs(one.clock_offset) > MUCH * shortest:
            yield Note(
                f"The clock of {one.name} on {one.host} is {one.clock_offset:+.1f} s off the database's. No lease "
                "is judged by it; logs and expiry of messages are. Let a time service set it."
            )


def _ttl(alias: str) -> float:
    try:
        return float(lock_backends[alias].ttl)
    except InvalidLockBackend:  # told by `manage.py check`
        return float("inf")


def context(found: Report, links: Links, data: str) -> dict[str, Any]:
    """What the template prints."""
    kinds = (("beat", "Beats"), ("worker", "Workers"))
    groups = [(title, [one for one in found.processes if one.kind == kind]) for kind, title in kinds]
    return {
        "title": "Workers and beats",
        "header": found.header,
        "notes": found.notes,
        "frozen": None,
        "groups": groups,
        "hidden": found.hidden,
        "everyone": found.everyone,
        "selected": f"{links.timeline}?selected=",
        "data_url": found.params.url(data, gone=1 if found.everyone else None),
    }


def as_json(found: Report) -> dict[str, Any]:
    """The processes, instants in UTC."""
    return {
        "schema": "aegis.workers.1",
        "notes": [note.text for note in found.notes],
        "processes": [
            {
                "kind": one.kind, "name": one.name, "host": one.host, "pid": one.pid, "health": one.health.value,
                "heartbeat_at": stamp(one.heartbeat_at), "started_at": stamp(one.started_at), "version": one.version,
                "pool": one.pool, "concurrency": one.concurrency, "queues": list(one.queues),
                "clock_offset": one.clock_offset, "running": [number for number, _ in one.running],
                "last_hour": {"ran": one.ran, "prevented": one.prevented, "failed": one.failed},
            }
            for one in found.processes
        ],
    }  # fmt: skip
