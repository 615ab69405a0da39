"""A run's figures of each fault under each strategy: what `aegis matrix load` stores. Pure, but for ``commit``."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from aegis_site.soak.history import History, Stay
from aegis_site.soak.injection import Fault
from aegis_site.soak.plan import FaultKind
from aegis_site.soak.verdicts import Broken, Finding

# The columns of a cell, by what may be found.
COLUMNS = {
    Broken.DUPLICATE: "duplicates",
    Broken.OVERLAP: "overlaps",
    Broken.STALE: "stale_effects",
    Broken.MISSED: "missed",
    Broken.UNEXPLAINED: "lost",
}
# Of these, those that this kind of fault explains alone count against what is documented.
HARM = (Broken.DUPLICATE, Broken.OVERLAP, Broken.STALE)


def cells(history: History, found: Sequence[Finding]) -> list[dict[str, str | int]]:
    """One row for each kind of fault that was made and each strategy that could feel it.

    A finding that several kinds explain counts under each of them: it cannot be told which one it was.
    """
    aliases = sorted({fate.alias for fate in history.fates})
    kinds = sorted({fault.kind for fault in history.faults})
    rows = (_cell(history, found, kind, alias) for kind in kinds for alias in aliases)
    return [row for row in rows if row["injected"]]


def _cell(history: History, found: Sequence[Finding], kind: FaultKind, alias: str) -> dict[str, str | int]:
    faults = [fault for fault in history.faults if fault.kind is kind and _reaches(fault, alias)]
    mine = [finding for finding in found if finding.alias == alias and kind in finding.faults]
    counts = Counter(COLUMNS[finding.what] for finding in mine if finding.what in COLUMNS)
    return {
        "fault": str(kind),
        "strategy": alias,
        "injected": len(faults),
        "bodies_hit": sum(_hits(faults, stay) for stay in history.stays if stay.alias == alias),
        **{column: counts[column] for column in COLUMNS.values()},
        "alone": sum(finding.what in HARM and len(finding.faults) == 1 for finding in mine),
        "broken_promises": sum(finding.promised for finding in mine),
    }


def _reaches(fault: Fault, alias: str) -> bool:
    """A fault of a store reaches the strategies that use it; one of a process or of messages reaches all."""
    return not fault.aliases or alias in fault.aliases or bool(fault.pids)


def _hits(faults: Iterable[Fault], stay: Stay) -> bool:
    return any(
        fault.touches(stay.pid, stay.alias) and stay.entered <= fault.end and fault.start <= stay.ended
        for fault in faults
    )


def commit(folder: Path) -> str:
    """The commit that was run, with a plus where files differ from it; empty outside of a clone."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=10"],
        cwd=folder, capture_output=True, text=True, timeout=10, check=False,
    )  # fmt: skip
    return told.stdout.strip() if told.returncode == 0 else ""
