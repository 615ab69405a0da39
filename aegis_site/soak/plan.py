"""What goes wrong, and when: an endless sequence of faults made from a seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class FaultKind(StrEnum):
    """The faults that a soak can make."""

    # SIGKILL of a whole worker, or of one of its children.
    KILL = "kill"
    # SIGSTOP of a worker for longer than a lease lives, then SIGCONT.
    PAUSE = "pause"
    # One worker is cut off from all lock stores and the database.
    PARTITION = "partition"
    # The Redis of the locks, or one node of the quorum, starts again and has forgotten everything.
    REDIS_RESTART = "redis-restart"
    # PostgreSQL stops, in order or by SIGKILL, and starts again.
    PG_RESTART = "pg-restart"
    # Messages of ticks, open or long closed, are published again.
    DUPLICATE = "duplicate"
    # SIGKILL of a beat.
    BEAT_KILL = "beat-kill"
    # A worker or a beat is asked to stop and started again.
    RELOAD = "reload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault to make: which, a number in [0, 1) that picks the target, a variant, and the wait before it."""

    kind: FaultKind
    pick: float
    variant: str
    gap: float


VARIANTS: dict[FaultKind, tuple[str, ...]] = {
    FaultKind.KILL: ("worker", "child"),
    FaultKind.PAUSE: ("worker", "child"),
    FaultKind.PARTITION: ("cut", "lose", "swallow"),
    FaultKind.REDIS_RESTART: ("locks", "node"),
    FaultKind.PG_RESTART: ("stop", "kill"),
    FaultKind.DUPLICATE: ("open", "closed"),
    FaultKind.BEAT_KILL: ("kill",),
    FaultKind.RELOAD: ("worker", "beat"),
}


def faults(seed: int, kinds: Sequence[FaultKind]) -> Iterator[Planned]:
    """Rounds of all ``kinds`` in an order of their own, each kind's variants in turn; the same for one seed."""
    random = Random(seed)  # noqa: S311 - to be repeated, not to be kept secret
    number = 0
    while kinds:
        for kind in random.sample(list(kinds), len(kinds)):
            variants = VARIANTS[kind]
            yield Planned(
                kind=kind,
                pick=random.random(),
                variant=variants[number % len(variants)],
                gap=random.uniform(0.5, 2.0),
            )
        number += 1
