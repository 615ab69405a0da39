"""A process named so that a later process with the same number is not taken for it."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """A process id with the time the process was started (Unix seconds, as the kernel tells it)."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """Mark a process that runs now. Raises psutil.NoSuchProcess when it does not."""
        return cls(pid=pid, started=psutil.Process(pid).create_time())

    @property
    def alive(self) -> bool:
        """Whether this very process still runs: not a zombie, and not another one that got its number."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
