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

# What stops a body when its lease is over widens the promise: an interrupt where the process can still run, the
# kernel's timer even where it cannot. By the word in the schedule's name.
STOPPED = {"-interrupt-": frozenset({F.PARTITION}), "-kill-": frozenset({F.PARTITION, F.PAUSE})}

# Nobody watches a claim while its body runs: it is looked at when the body has ended.
UNWATCHED = frozenset({"optimistic"})

# The stores of each strategy that a fault can take away.
TOUCHED_BY_POSTGRES = frozenset({"database", "optimistic", "advisory", "row_lock"})


def overlap_is_promised_away(alias: str, schedule: str, kinds: frozenset[F]) -> bool:
    """Whether no overlap was promised although exactly the faults ``kinds`` touched the two bodies."""
    stopped = next((faults for word, faults in STOPPED.items() if word in schedule), frozenset())
    if alias in UNWATCHED:
        stopped = frozenset()
    return alias != "none" and not kinds & (OVERLAP_NOT_COVERED[alias] - stopped)
