"""Retargeting: an operator changes the strategy that guards a schedule's lock name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from locks import InvalidLockBackend, lock_backends
from scheduler.changes import Refused, Who, note
from scheduler.models import LockName, Schedule
from scheduler.registry import exclusive_tasks
from scheduler.statements import retarget as statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Retargeted:
    """What was done: the strategy in force before and now, and what was open if it was done at once."""

    before: str
    in_force: str
    wanted: str
    open_ticks: int = 0
    running: int = 0


def retarget(name: str, alias: str, *, now: bool = False, why: str = "", who: Who) -> Retargeted:
    """Let ``alias`` guard the lock name of schedule ``name``, and so every schedule that shares it.

    It comes into force when nothing under the name is open. ``now`` is the audited exception: at once, whatever is
    open, also where the strategy in force has left LOCKS; a body that is inside may then be overlapped, messages
    on their way may not. Each schedule of the name gets a change row. Raises ``Refused`` where the strategy cannot
    be used or is the one already, and ``Schedule.DoesNotExist``.
    """
    with transaction.atomic():
        lock = LockName.objects.select_for_update(no_key=True).get(schedules__name=name)
        sharing = list(Schedule.objects.filter(lock=lock).order_by("name"))
        backend = _usable(alias, sharing)
        if lock.alias_wanted == alias and (not now or lock.alias_in_force == alias):
            raise Refused(f"Lock name {lock.name!r} has strategy {alias!r} already.")
        changed = {"strategy": [lock.alias_wanted, alias]}
        open_ticks = running = 0
        if now:
            open_ticks, running = _at_once(lock.name, alias, backend.ttl)
            changed["strategy in force"] = [lock.alias_in_force, f"{alias}, at once, with {open_ticks} ticks open"]
        else:
            LockName.objects.filter(pk=lock.pk).update(alias_wanted=alias)
        for schedule in sharing:
            note(schedule, changed, why=why, who=who)
    return Retargeted(
        before=lock.alias_in_force, in_force=alias if now else lock.alias_in_force, wanted=alias,
        open_ticks=open_ticks, running=running,
    )  # fmt: skip


def _at_once(name: str, alias: str, ttl: float) -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(statements.NAME, {"name": name, "alias": alias})
        cursor.execute(statements.TICKS, {"name": name, "alias": alias, "ttl": ttl})
        row = cursor.fetchone()
    return row[0], row[1]


def _usable(alias: str, sharing: list[Schedule]) -> Any:
    """The strategy, if each schedule of the name can be guarded by it."""
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend as problem:
        known = ", ".join(sorted(lock_backends.aliases()))
        raise Refused(f"Strategy {alias!r} cannot be used: {problem} LOCKS defines {known}.") from problem
    for schedule in sharing:
        refusal = ttl_problem(backend, schedule.task, schedule.ttl)
        if refusal:
            raise Refused(f"Schedule {schedule.name!r}: {refusal}")
    return backend


def ttl_problem(backend: Any, task_name: str | None, ttl: float | None) -> str:
    """Why a strategy cannot guard a task with this TTL (None: its own), or nothing.

    A claim is not renewed, so a body that may run longer than its window is told before it is stored.
    """
    try:
        ttl = backend.ttl if ttl is None else backend.clean_ttl(ttl)
    except ValueError as refusal:
        return str(refusal)
    limit = getattr(exclusive_tasks().get(task_name or ""), "time_limit", None)
    if backend.verifies and not backend.renewable and limit and limit >= ttl:
        return (
            f"Strategy {backend.alias} is not renewed: the task's hard time limit is {limit:g} s and must be "
            f"below the window of {ttl:g} s. Raise the TTL above {limit:g}, or lower the task's time_limit."
        )
    return ""
