"""The catalog and the ledger in Django admin: schedules are edited, facts are read."""

from __future__ import annotations

from scheduler.admin.facts import ExecutionAdmin, InstanceAdmin, LockNameAdmin, ScheduleChangeAdmin, TickAdmin
from scheduler.admin.schedule import ScheduleAdmin

__all__ = [
    "ExecutionAdmin",
    "InstanceAdmin",
    "LockNameAdmin",
    "ScheduleAdmin",
    "ScheduleChangeAdmin",
    "TickAdmin",
]
