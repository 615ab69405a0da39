"""Which failures each strategy covers: the table of the documentation, as far as a soak can try it."""

from __future__ import annotations

from aegis_site.soak.plan import FaultKind as F

# Faults after which two bodies under one lock name may be inside at once, by strategy. What is not named is covered.
OVERLAP_NOT_COVERED: dict[str, frozenset[F]] = {
    "none": frozenset(F),
    "database": frozenset({F.PAUSE, F.PARTITION}),
    "optimistic": frozenset({F.PAUSE, F.PARTITION}),
    "redis": frozenset({F.PAUSE, F.PARTITION, F.REDIS_RESTART}),
    "redlock": frozenset({F.PAUSE, F.PARTITION}),
    "advisory": frozenset({F.PARTITION, F.PG_RESTART}),
    "row_lock": frozenset({F.PARTITION, F.PG_RESTART}),
}

# The stores of each strategy that a fault can take away.
TOUCHED_BY_POSTGRES = frozenset({"database", "optimistic", "advisory", "row_lock"})


def overlap_is_promised_away(alias: str, kinds: frozenset[F]) -> bool:
    """Whether the strategy promises no overlap although exactly the faults ``kinds`` touched it."""
    return not kinds & OVERLAP_NOT_COVERED[alias] and alias != "none"
