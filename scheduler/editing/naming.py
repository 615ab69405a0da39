"""The lock name in a schedule's form: what an empty one becomes, and what stands against another one."""

from __future__ import annotations

from locks.base import validate_name
from scheduler.models import Execution, Schedule, Tick
from scheduler.registry import exclusive_tasks
from scheduler.states import OPEN_TICKS, ExecutionState


def derived(name: str, pk: int | None, task: str | None) -> str:
    """The lock name of schedule ``pk`` (None: a new one) where none is given: the one that its task declares, else
    its own name, lower case, ``-`` for a space.

    Raises ``ValueError`` where another schedule has it, or characters would be lost: "Отчёт" and "Архив", or "a b"
    and "a/b", would share a lock that nobody meant to share.
    """
    declared = exclusive_tasks().get(task or "")
    try:
        found = (declared and declared.exclusive_lock_name) or validate_name(name.lower().replace(" ", "-"))
    except ValueError:
        raise ValueError(
            f'No lock name can be made of the name "{name}". Write one here: lower-case letters, digits and . _ : -'
        ) from None
    sharing = Schedule.objects.filter(lock=found).order_by("name")
    other = (sharing.exclude(pk=pk) if pk else sharing).first()
    if other is not None:
        raise ValueError(
            f'Lock name "{found}" is that of schedule "{other.name}". Write another one here; or write this one, and '
            "the two exclude each other and share the strategy."
        )
    return found


def refusal(schedule: Schedule, may_change_strategy: bool) -> str:
    """Why a stored schedule cannot be given another lock name now; empty: it can.

    Timeline without this: a body is inside under ``a``; the name becomes ``b``; the next tick finds ``b`` free.
    """
    name = schedule.lock_id
    if not may_change_strategy:
        return (
            f'Another lock name is another guard: to change "{name}" you need the permission change_strategy; '
            "keep it, or ask somebody who has it."
        )
    what = _open(schedule)
    if not what:
        return ""
    return (
        f'Under "{name}" {what}, and a run under another name would not wait for that. Pause the schedule, wait '
        "until nothing of it is open, change the name, and resume."
    )


def _open(schedule: Schedule) -> str:
    """What is open of it under its lock name, for people."""
    mine = {"lock_name": schedule.lock_id}
    bodies = Execution.objects.filter(tick__schedule=schedule, state=ExecutionState.RUNNING, **mine)
    body = bodies.order_by("started_at").first()
    if body is not None:
        return f"{body.worker or 'an unnamed worker'} is inside since {body.started_at:%Y-%m-%d %H:%M:%S} UTC"
    tick = Tick.objects.filter(schedule=schedule, state__in=OPEN_TICKS, **mine).order_by("fire_time").first()
    if tick is not None:
        return f"its tick of {tick.fire_time:%Y-%m-%d %H:%M:%S} UTC is {tick.get_state_display().lower()}"
    return ""
