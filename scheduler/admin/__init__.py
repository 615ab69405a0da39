"""The catalog, the ledger and the dashboard in Django admin: schedules are edited, all else is read."""

from __future__ import annotations

from scheduler.admin import beat
from scheduler.admin.facts import (
    InstanceAdmin,
    LockNameAdmin,
    LockReleaseAdmin,
    ScheduleChangeAdmin,
)
from scheduler.admin.ledger import ExecutionAdmin, TickAdmin
from scheduler.admin.schedule import ScheduleAdmin
from scheduler.dashboard.admin import OverviewAdmin, TimelineAdmin
from scheduler.dashboard.alerts_admin import AlertAdmin
from scheduler.dashboard.locks_admin import LocksAdmin

__all__ = [
    "AlertAdmin",
    "ExecutionAdmin",
    "InstanceAdmin",
    "LockNameAdmin",
    "LockReleaseAdmin",
    "LocksAdmin",
    "OverviewAdmin",
    "ScheduleAdmin",
    "ScheduleChangeAdmin",
    "TickAdmin",
    "TimelineAdmin",
    "beat",
]
