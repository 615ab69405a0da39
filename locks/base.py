"""Values that cross the boundary between callers and backends, and the rules for what may be put in them.

Pure: no store, no clock, no settings.
"""

from __future__ import annotations

import math
import re
import uuid
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

NAME_PATTERN = r"^[a-z0-9._:-]{1,200}$"
"""What a lock name may look like. Each table that stores one has a CHECK constraint for the same characters."""

MAX_TTL = 30 * 24 * 3600.0
"""Longest time to live, in seconds. Leases are renewed: a longer one is a mistake in units."""

_NAME = re.compile(NAME_PATTERN)


def validate_name(name: str) -> str:
    """Return ``name`` if it may name a lock, else raise ``ValueError`` saying what is allowed."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"Invalid lock name {name!r}: use 1 to 200 of the characters a-z 0-9 . _ : - (lower case only)."
        )
    return name


def validate_ttl(ttl: float, *, minimum: float = 0.0, maximum: float = MAX_TTL) -> float:
    """Return ``ttl`` as seconds (float) if it is a finite number in (0, maximum] and not below ``minimum``.

    Raises ``ValueError`` otherwise. ``True`` is refused too: it is an ``int`` for Python and a mistake for
    everybody.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not math.isfinite(ttl) or ttl <= 0:
        raise ValueError(f"Invalid ttl {ttl!r}: give a positive number of seconds.")
    if ttl < minimum:
        raise ValueError(f"Invalid ttl {ttl!r}: this backend cannot keep a lease below {minimum:g} seconds.")
    if ttl > maximum:
        raise ValueError(f"Invalid ttl {ttl!r}: at most {maximum:g} seconds are allowed here.")
    return float(ttl)


def new_lease_id() -> UUID:
    """A fresh random id for one acquisition.

    Never made from a host name, a pid or a task id: a broker redelivers a message with the *same* task id,
    so a holder known by it would take the duplicate for itself and let both run. ``uuid4`` reads the
    kernel's random source on each call, so that a forked child does not repeat its parent.
    """
    return uuid.uuid4()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A time-limited exclusive right to a name, as its holder knows it.

    ``lease_id`` proves ownership in every compare-and-act; ``holder`` is for people only. ``grant_no``
    grows with each grant of the name where the backend numbers its grants, else ``None``, and is compared only with
    numbers of the same ``numbering`` (by default: the alias). ``trusted_until``
    is a reading of ``locks.clock.boottime()`` on this machine: after it the lease counts as lost here,
    whatever the store says. It is ``math.inf`` where no trust window applies.
    """

    name: str
    alias: str
    lease_id: UUID
    holder: str
    ttl: float
    grant_no: int | None
    trusted_until: float
    numbering: str = ""

    def __post_init__(self) -> None:
        if not self.numbering:
            object.__setattr__(self, "numbering", self.alias)
        validate_name(self.name)
        validate_ttl(self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseInfo:
    """What a store shows about a held name: for display and for the reaper, never a proof of ownership.

    ``expires_in`` is in seconds by the store's clock at the time of the answer; ``acquired_at`` is aware
    UTC, by the store's clock. Either is ``None`` where the store does not tell.
    """

    name: str
    alias: str
    lease_id: UUID | None
    holder: str
    grant_no: int | None
    expires_in: float | None
    acquired_at: datetime | None


LeaseInfos = list[LeaseInfo]
"""What ``list()`` returns. Named here, because a class with a method ``list`` cannot write ``list[...]``."""
