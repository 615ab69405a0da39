"""Everything that a soak left behind, brought together: the journal, the audit, the effects and the faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from aegis_site.soak.catalog import TTL
from aegis_site.soak.injection import Fault
from aegis_site.soak.journal import Line
from aegis_site.soak.pace import Load

# What comes on top of a lease after a fault: a pass of a beat, a delivery, seconds. The next fire time comes as well.
EXTRA = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One body as its process told it: from ``entered`` to ``ended`` on ``boottime()``.

    ``how``: left, lost, raised, killed (its process was, at ``ended``) or unknown (nothing more is known of it
    than that it was there at ``ended``).
    """

    execution: int
    tick: int
    attempt: int
    schedule: str
    subject: str
    name: str
    alias: str
    token: int | None
    pid: int
    entered: float
    ended: float
    how: str
    effects: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One accepted effect, by the database's clock."""

    name: str
    schedule: str
    subject: str
    execution: int
    token: int | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One execution whose body may have begun, as the audit shows it."""

    execution: int
    tick: int
    name: str
    alias: str
    schedule: str
    token: int | None
    pid: int
    state: str
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one tick, or of a stretch of fire times that one row stands for."""

    tick: int
    schedule: str
    alias: str
    state: str
    outcome: str
    reason: str
    fire_time: datetime
    through: datetime | None
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One run. ``boot_epoch`` turns a stamp of the database into ``boottime()``: seconds to subtract."""

    stays: Sequence[Stay]
    effects: Sequence[Effect]
    counters: dict[str, int]
    starts: Sequence[Start]
    fates: Sequence[Fate]
    faults: Sequence[Fault]
    boot_epoch: float
    period: int = 1  # of every schedule, seconds
    load: Load = field(default_factory=Load)
    guarded: bool = True  # the tick guard was on
    fenced: bool = True  # the commit guard was on
    notes: list[str] = field(default_factory=list)

    @property
    def aftermath(self) -> float:
        """How long after its end a fault may explain what is seen, and until when a dead holder's name is taken
        again, seconds: leases run out, backlogs are worked off."""
        return TTL + EXTRA + self.period

    def boot(self, stamp: datetime) -> float:
        """A stamp of the database as ``boottime()``. One machine, one clock that nobody steps during a soak."""
        return stamp.timestamp() - self.boot_epoch


def stays(journal: Iterable[Line], faults: Sequence[Fault]) -> list[Stay]:
    """The bodies that a journal tells of, by execution, in the order of entering."""
    by_execution: dict[int, list[Line]] = defaultdict(list)
    last_of: dict[int, float] = {}
    for line in journal:
        by_execution[line["execution"]].append(line)
        last_of[line["pid"]] = line["at"]
    deaths = {pid: fault.start for fault in faults if fault.killed for pid in fault.pids}
    found = [_stay(lines, deaths) for lines in by_execution.values()]
    return sorted(found, key=lambda stay: stay.entered)


def _stay(lines: list[Line], deaths: dict[int, float]) -> Stay:
    first, last = lines[0], lines[-1]
    ended, how = last["at"], last["event"]
    if how in ("entered", "effect"):
        died = deaths.get(first["pid"])
        ended, how = (died, "killed") if died is not None and died >= ended else (ended, "unknown")
    kept = ("execution", "tick", "attempt", "schedule", "subject", "name", "alias", "token", "pid")
    return Stay(
        entered=first["at"],
        ended=ended,
        how=how,
        effects=tuple(line["at"] for line in lines if line["event"] == "effect"),
        **{key: first[key] for key in kept},
    )
