"""What was found by looking at a store, a setting or a process: one line for a person, with what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    # As it should be.
    OK = "ok"
    # Works, and a promise is weaker than its reader may think; or it could not be looked at.
    WARN = "warn"
    # Some run will be refused, missed, doubled or lost.
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: ``topic``, a ``sentence`` with figures, and the next step, which only a good line leaves out.

    Never holds a password: servers are named by host and port. Raises ``ValueError`` for a bad line that leaves
    its reader alone.
    """

    level: Level
    topic: str
    sentence: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if (self.level is Level.OK) != (self.remedy == ""):
            raise ValueError(f"A finding has a next step if, and only if, it is not ok: {self.sentence!r}")


Findings = list[Finding]
"""What ``examine()`` returns. Named, because a class with a method ``list`` cannot write ``list[...]``."""


def ok(topic: str, sentence: str) -> Finding:
    return Finding(level=Level.OK, topic=topic, sentence=sentence)


def warn(topic: str, sentence: str, remedy: str) -> Finding:
    return Finding(level=Level.WARN, topic=topic, sentence=sentence, remedy=remedy)


def fail(topic: str, sentence: str, remedy: str) -> Finding:
    return Finding(level=Level.FAIL, topic=topic, sentence=sentence, remedy=remedy)


def could_not_look(topic: str, what: str, remedy: str) -> Finding:
    """Unknown is a warning of its own: neither good nor bad may be concluded from it."""
    return warn(topic, f"could not look: {what}", remedy)
