"""Delivery: one message of one tick, as a worker received it, and the stamp that a message carries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

# Raised when a field of the stamp changes its meaning; a worker ignores fields that it does not know.
STAMP_VERSION = 1
HEADER = "aegis"


class UnreadableStamp(ValueError):
    """The message was stamped by a version of Aegis that this worker cannot read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """All that a worker needs to know; nothing has to be looked up before the lease is asked for."""

    tick_id: int
    attempt: int
    schedule: str
    fire_time: datetime
    lock_name: str
    alias: str
    ttl: float
    guarded: bool
    task_id: str
    worker: str
    manual_key: str | None = None

    @property
    def keys(self) -> dict[str, Any]:
        """The parameters that the statements about this delivery share."""
        return {
            "tick": self.tick_id,
            "attempt": self.attempt,
            "guarded": self.guarded,
            "name": self.lock_name,
            "alias": self.alias,
            "worker": self.worker,
            "pid": os.getpid(),
            "task_id": self.task_id,
        }


def task_id_of(tick: Any) -> str:
    """One task id for a tick, its attempt and its deadline.

    Copies share it, so a revoke reaches them all and results do not multiply. With another deadline it is another:
    for three hours a worker takes the id of a message that has expired for revoked.
    """
    until = tick.deadline.astimezone(UTC).isoformat()
    return str(uuid5(NAMESPACE_URL, f"aegis:tick:{tick.id}:{tick.attempt}:{until}"))


def stamp(tick: Any) -> dict[str, Any]:
    """The header of a tick's message: JSON values only."""
    return {
        "version": STAMP_VERSION,
        "tick": tick.id,
        "attempt": tick.attempt,
        "schedule": tick.schedule_name,
        "fire_time": tick.fire_time.isoformat(),
        "lock_name": tick.lock_name,
        "alias": tick.lock_alias,
        "ttl": tick.ttl,
        "guarded": tick.once_per_tick,
        "manual_key": tick.manual_key,
    }


def read_stamp(header: dict[str, Any], *, task_id: str, worker: str) -> Delivery:
    """The delivery that a header describes.

    Raises ``UnreadableStamp`` for a newer version or a missing field: the message belongs to a worker with newer
    code, and the tick, which stays open, is published again for it.
    """
    version = header.get("version")
    if version != STAMP_VERSION:
        raise UnreadableStamp(f"this worker reads stamp version {STAMP_VERSION}, the message carries {version!r}")
    try:
        return Delivery(
            tick_id=header["tick"],
            attempt=header["attempt"],
            schedule=header["schedule"],
            fire_time=datetime.fromisoformat(header["fire_time"]),
            lock_name=header["lock_name"],
            alias=header["alias"],
            ttl=header["ttl"],
            guarded=header["guarded"],
            task_id=task_id,
            worker=worker,
            manual_key=header.get("manual_key"),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableStamp(f"the stamp of the message is incomplete: {problem!r}") from problem
