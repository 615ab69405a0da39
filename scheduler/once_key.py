"""The idempotency key of one step of one tick. Pure."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

AGAIN = "again:"
"""With this begins the key of a manual tick that runs a past fire time again."""


def once_key(step: str, *, schedule: str, fire_time: datetime, manual_key: str | None) -> str:
    """``aegis-`` and 40 hexadecimal digits: the same for one (schedule, fire time, step), whatever the attempt.

    A manual tick counts by its key instead, unless it runs a past fire time again: then it is that fire time's. The
    digits are a hash of the parts, so the key may stand in an HTTP header, a Message-ID or a file name, tells
    nothing, and two steps never share one by the way they are spelled.
    Other systems keep these keys: how they are made must not change between versions.
    """
    if not step:
        raise ValueError("once_key(step): name the step, such as 'invoice-mail'; an empty name says nothing")
    if manual_key is None or manual_key.startswith(AGAIN):
        parts = ["tick", schedule, fire_time.astimezone(UTC).isoformat(timespec="microseconds"), step]
    else:
        parts = ["manual", manual_key, step]
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=20)
    return f"aegis-{digest.hexdigest()}"
