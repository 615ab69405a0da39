"""The result of an examination: the findings, and what they mean for an exit status. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from locks import Finding, Level

EX_UNAVAILABLE = 69  # sysexits.h: the database cannot be reached
SHOWN = 3  # names in a sentence, before "and n more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """``reachable``: whether the database answered, without which half of the questions cannot be asked."""

    findings: tuple[Finding, ...]
    reachable: bool = True

    @property
    def counts(self) -> dict[str, int]:
        """How many findings of each level."""
        found = Counter(finding.level for finding in self.findings)
        return {level.value: found[level] for level in Level}

    @property
    def level(self) -> Level:
        """The worst."""
        return max((finding.level for finding in self.findings), key=list(Level).index, default=Level.OK)

    def exit_status(self, *, strict: bool = False) -> int:
        """0: nothing failed (``strict``: nor was anything warned of); 1: something; 69: no database."""
        if not self.reachable:
            return EX_UNAVAILABLE
        return int(self.level is Level.FAIL or (strict and self.level is Level.WARN))


def together(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, in order: four strategies may share one database, and say the same of it."""
    return tuple(dict.fromkeys(findings))


def named(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    known: Sequence[str] = sorted(set(names))
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return ", ".join(known[:SHOWN]) + more
