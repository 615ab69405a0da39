"""The newest measured run and its cells, for pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.dashboard.params import stamp
from scheduler.models import MeasuredCell, MeasuredRun

MOST_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one run says of one strategy, over all faults."""

    strategy: str
    ticks: int
    injected: int
    bodies_hit: int
    alone: int
    missed: int
    takeovers: int
    takeover_p99_s: float | None
    broken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run, its conditions in words, and how many more are stored."""

    run: MeasuredRun
    cells: Sequence[MeasuredCell]
    runs: Sequence[MeasuredRun]

    @property
    def conditions(self) -> str:
        """What it was measured on."""
        run = self.run
        guards = [] if run.tick_guard else ["tick guard off"]
        guards += [] if run.commit_guard else ["commit guard off"]
        commit = f" ({run.commit})" if run.commit else ""
        return ", ".join(
            (
                f"{run.ticks:,} ticks in {run.seconds:.0f} s",
                f"{run.workers} workers, {run.beats} beats",
                f"seed {run.seed}",
                *guards,
                f"version {run.version}{commit}",
            )
        )

    @property
    def command(self) -> str:
        """What repeats it."""
        run = self.run
        guards = "" if run.tick_guard else " --no-tick-guard"
        guards += "" if run.commit_guard else " --no-commit-guard"
        return (
            f"manage.py aegis soak --ticks {run.ticks} --workers {run.workers} --beats {run.beats} "
            f"--seed {run.seed}{guards} --output FILE"
        )

    @property
    def lines(self) -> list[Line]:
        """By strategy."""
        return [_line(alias, told, self.cells) for alias, told in sorted(self.run.strategies.items())]

    def as_json(self) -> dict[str, Any]:
        """The run and its cells."""
        names = [f.name for f in MeasuredCell._meta.concrete_fields if f.name not in ("id", "run")]
        return {
            "measured_at": stamp(self.run.measured_at),
            "conditions": self.conditions,
            "cells": [{name: getattr(cell, name) for name in names} for cell in self.cells],
        }


def _line(alias: str, told: dict[str, Any], cells: Iterable[MeasuredCell]) -> Line:
    mine = [cell for cell in cells if cell.strategy == alias]
    return Line(
        strategy=alias,
        ticks=told.get("ticks") or 0,
        injected=sum(cell.injected for cell in mine),
        bodies_hit=sum(cell.bodies_hit for cell in mine),
        alone=sum(cell.alone for cell in mine),
        missed=max((cell.missed for cell in mine), default=0),
        takeovers=told.get("takeovers") or 0,
        takeover_p99_s=told.get("takeover_p99_s"),
        broken=max((cell.broken_promises for cell in mine), default=0),
    )


def measured(number: int | None = None) -> Measured | None:
    """The newest run, or that of ``number``. Two queries; None where nothing was loaded."""
    runs = list(MeasuredRun.objects.all()[:MOST_RUNS])
    chosen = next((run for run in runs if run.pk == number), runs[0] if runs else None)
    if chosen is None:
        return None
    return Measured(run=chosen, cells=list(chosen.cells.all()), runs=runs)
