"""What tests share: waiting for a condition, and real workers and beats."""

from __future__ import annotations

from tests.support.processes import CeleryProcesses
from tests.support.waiting import wait_until

__all__ = ["CeleryProcesses", "wait_until"]
