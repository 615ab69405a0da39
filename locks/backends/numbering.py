"""Whose count a grant number is of.

Where another store comes behind an alias, its numbers may begin far below those of the old one: those of Redis are
microseconds, those of PostgreSQL begin at 1. A fence that compared them would take each holder for a stale one, for
ever. So it remembers, beside a number, the alias and a short digest of where the number came from.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import BaseLockBackend

ROOM = 80  # characters of the alias, which is in the digest as a whole


@lru_cache(maxsize=64)
def numbering_of(backend: BaseLockBackend, *known: str) -> str:
    """What two grants must share for their numbers to be compared.

    Processes have to name a store alike: by another address it counts as another. Neither user nor password matter.
    ``known``: what else tells the store from one that stood at this address before.
    """
    kind = f"{type(backend).__module__}.{type(backend).__qualname__}"
    told = "\n".join((backend.alias, kind, backend.key_prefix, *backend.place(), *known))
    return f"{backend.alias[:ROOM]}/{sha256(told.encode()).hexdigest()[:8]}"
