"""The catalog (LockName, Schedule, ScheduleChange) and the ledger (Tick, Execution, Instance)."""

from __future__ import annotations

from scheduler.models.alert import Alert, AlertDelivery, AlertLook, AlertRule
from scheduler.models.dashboard import Dashboard, FailureMatrix, Locks, Strategies, Timeline, Workers
from scheduler.models.execution import Execution
from scheduler.models.instance import Instance
from scheduler.models.lock_name import LockName
from scheduler.models.lock_release import LockRelease
from scheduler.models.measured import MeasuredCell, MeasuredRun
from scheduler.models.schedule import Schedule
from scheduler.models.schedule_change import ScheduleChange
from scheduler.models.summary import SliceTally, SummedSlice
from scheduler.models.tick import Tick

__all__ = [
    "Alert",
    "AlertDelivery",
    "AlertLook",
    "AlertRule",
    "Dashboard",
    "Execution",
    "FailureMatrix",
    "Instance",
    "LockName",
    "LockRelease",
    "Locks",
    "MeasuredCell",
    "MeasuredRun",
    "Schedule",
    "ScheduleChange",
    "SliceTally",
    "Strategies",
    "SummedSlice",
    "Tick",
    "Timeline",
    "Workers",
]
