"""The verdict, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from aegis_site.soak.history import History
from aegis_site.soak.measured import cells
from aegis_site.soak.verdicts import Broken, Finding, findings, takeovers, void

SHOWN = 20  # findings told one by one
STARVED = "this machine had no CPU time to spare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run has shown. ``broken``: promised and not kept; ``shown``: what was never promised, and happened."""

    history: History
    found: Sequence[Finding]
    seconds: float

    @classmethod
    def of(cls, history: History, seconds: float) -> Verdict:
        return cls(history=history, found=findings(history), seconds=seconds)

    @property
    def broken(self) -> list[Finding]:
        return [finding for finding in self.found if finding.promised]

    @property
    def shown(self) -> list[Finding]:
        return [finding for finding in self.found if not finding.promised]

    @property
    def inconclusive(self) -> list[str]:
        """Why the run proves less than it says: faults without a trace, a guard that was off and not missed."""
        reasons = [f"{fault.kind} ({fault.variant}) left no trace" for fault in void(self.history.faults)]
        seen = {finding.what for finding in self.shown if finding.alias != "none"}
        if not self.history.guarded and Broken.DUPLICATE not in seen:
            reasons.append("without the tick guard no tick was run twice")
        if not self.history.fenced and Broken.STALE not in seen:
            reasons.append("without the commit guard no stale effect was written")
        if starved := sum(finding.starved for finding in self.shown):
            reasons.append(f"{starved} fire times were missed or taken over late: {STARVED}")
        return reasons


def as_json(verdict: Verdict, **run: Any) -> dict[str, Any]:
    """One object: the run, the faults, what each strategy did, and every broken promise."""
    history = verdict.history
    return {
        "schema": "aegis.soak.1",
        **run,
        "period_s": history.period,
        "seconds": round(verdict.seconds, 1),
        "ticks": len(history.fates),
        "bodies": len(history.stays),
        "effects": len(history.effects),
        "faults": dict(sorted(Counter(str(fault.kind) for fault in history.faults).items())),
        "strategies": {alias: _strategy(verdict, alias) for alias in _aliases(history)},
        "broken_promises": [
            {"what": f.what, "strategy": f.alias, "schedule": f.schedule, "detail": f.detail} for f in verdict.broken
        ],
        "inconclusive": verdict.inconclusive,
        "matrix": cells(history, verdict.found),
    }


def _aliases(history: History) -> list[str]:
    return sorted({fate.alias for fate in history.fates})


def _strategy(verdict: Verdict, alias: str) -> dict[str, Any]:
    history = verdict.history
    waits = sorted(delay for stay, delay in takeovers(history) if stay.alias == alias)
    return {
        "ticks": sum(1 for fate in history.fates if fate.alias == alias),
        "outcomes": dict(sorted(Counter(fate.outcome for fate in history.fates if fate.alias == alias).items())),
        "executions": dict(sorted(Counter(s.state for s in history.starts if s.alias == alias).items())),
        "takeovers": len(waits),
        "takeover_p99_s": round(waits[min(len(waits) - 1, int(0.99 * len(waits)))], 2) if waits else None,
        "found": {what.value: _counts(verdict.found, alias, what) for what in Broken},
    }


def _counts(found: Iterable[Finding], alias: str, what: Broken) -> dict[str, Any]:
    """How often, how often against a promise, and by which faults."""
    mine = [finding for finding in found if finding.alias == alias and finding.what == what]
    by_fault = Counter(_cause(finding) for finding in mine)
    return {"count": len(mine), "against_promise": sum(f.promised for f in mine), "by_fault": dict(by_fault)}


def _cause(finding: Finding) -> str:
    return " + ".join(sorted(finding.faults)) or ("no CPU time" if finding.starved else "nothing")


def show(verdict: Verdict, console: Console) -> None:
    """A table of findings by guarantee and strategy, the faults that explain them, and the broken promises."""
    history = verdict.history
    aliases = _aliases(history)
    table = Table(title="Found, and in brackets how many of it against a promise", title_justify="left")
    table.add_column("")
    for alias in aliases:
        table.add_column(alias, justify="right")
    table.add_row("ticks", *(str(sum(f.alias == alias for f in history.fates)) for alias in aliases))
    table.add_row("bodies", *(str(sum(s.alias == alias for s in history.stays)) for alias in aliases))
    for what in Broken:
        table.add_row(what, *(_cell(_counts(verdict.found, alias, what)) for alias in aliases))
    console.print(table)
    faults = Counter(str(fault.kind) for fault in history.faults)
    console.print("Faults: " + (", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())) or "none"))
    for finding in verdict.broken[:SHOWN]:
        console.print(f"[bold red]Broken promise[/]: {finding.schedule}: {finding.what}: {finding.detail}")
    for reason in verdict.inconclusive:
        console.print(f"[yellow]Inconclusive[/]: {reason}")
    console.print(f"{len(verdict.broken)} promises broken; {len(verdict.shown)} findings that no promise covers.")


def _cell(counts: dict[str, Any]) -> str:
    if not counts["count"]:
        return "0"
    text = f"{counts['count']} ({counts['against_promise']})"
    return f"[bold red]{text}[/]" if counts["against_promise"] else text
