"""Jitter: how long after its fire time a tick is published first. Pure.

It comes from a hash of schedule and fire time, so that every beat, and every preview, says the same; a random
number would differ between the beat that stores a tick and the page that announces it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

_PARTS = 2**32


def delay(schedule_id: int, fire_time: datetime, most: float) -> timedelta:
    """From 0 up to, not including, ``most`` seconds; in whole milliseconds, rounded down."""
    if not most:
        return timedelta(0)
    name = f"{schedule_id}:{fire_time.astimezone(UTC).isoformat()}"
    part = int.from_bytes(sha256(name.encode()).digest()[:4])
    return timedelta(milliseconds=int(most * 1000 * part / _PARTS))
