"""What several topics judge by, asked for once: the catalog, the fleet, the strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from locks import Finding
from locks.findings import could_not_look
from scheduler.doctor import catalog, fleet, leases
from scheduler.doctor.bounded import REMEDY, Asked, NotAnswered
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.fleet import Fleet
from scheduler.doctor.leases import Strategy
from scheduler.error_text import describe, storable
from scheduler.registry import exclusive_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """``None``: it could not be looked at, and ``why`` says so."""

    scheduled: Sequence[Scheduled] | None
    fleet: Fleet | None
    strategies: Mapping[str, Strategy]
    why: str = ""

    def needing(self, topic: str, judge: Callable[[Sequence[Scheduled], Fleet], list[Finding]]) -> list[Finding]:
        """The findings of ``judge``, or that the catalog or the fleet could not be looked at."""
        if self.scheduled is None or self.fleet is None:
            return [could_not_look(topic, self.why, REMEDY)]
        return judge(self.scheduled, self.fleet)


def known(patience: float, *, reachable: bool) -> Known:
    """Ask the database, for ``patience`` seconds at most; not at all where it did not answer before."""
    strategies = leases.ask()
    if not reachable:
        return Known(scheduled=None, fleet=None, strategies=strategies, why="the database does not answer")
    try:
        exclusive_tasks()  # imports them, which may take its time and is not a question
    except Exception as trouble:  # whatever a project's module raises
        said = storable((describe(trouble).splitlines() or [""])[0], 200)
        return Known(scheduled=None, fleet=None, strategies=strategies, why=f"a module of tasks: {said}")
    rows, alive = Asked(catalog.read), Asked(fleet.read)
    try:
        return Known(scheduled=rows.answer(patience), fleet=alive.answer(patience), strategies=strategies)
    except NotAnswered as why:
        return Known(scheduled=None, fleet=None, strategies=strategies, why=f"catalog and processes: {why}")
