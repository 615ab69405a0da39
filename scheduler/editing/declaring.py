"""Schedules in code: ``scheduler.declare()``, by the form that the admin's pages use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from scheduler.changes import Who
from scheduler.editing import meanwhile, naming
from scheduler.editing.arguments import DEEPEST, cut, depth
from scheduler.editing.form import INSTANTS, ScheduleForm, can_be_stored
from scheduler.editing.storing import changes, store
from scheduler.models import LockName, Schedule
from scheduler.recurrence_rules import InvalidRecurrence, in_utc
from scheduler.registry import exclusive_tasks

SOURCE = "code (declare)"  # who, in the change history; no user can have this name
ARGUMENTS: dict[str, type] = {"args": list, "kwargs": dict}
_RECURRENCE = {"cron_expression": "cron", "every_seconds": "every", "once_at": "at"}  # of the form -> of the call
_TEXTS = ("name", "task", "lock_name", "strategy")  # looked for before the form has seen them
_SWITCHES = ("enabled", "once_per_tick")  # a form takes None for False, and any text for True
_MORE = frozenset(ScheduleForm.Meta.fields) - {"name", "task", *_RECURRENCE}

Given = Mapping[str, Any]


def declare(
    name: str,
    *,
    task: Any,
    cron: str | None = None,
    every: float | timedelta | None = None,
    at: datetime | None = None,
    lock_name: str | None = None,
    strategy: str | None = None,
    **fields: Any,
) -> Schedule:
    """Make the schedule ``name``, or change it to what is said here; returns it as stored.

    Exactly one of ``cron``, ``every`` (whole seconds, or a timedelta) and ``at`` (aware) is given. ``task``: an
    exclusive task, or its name. ``fields``: any other field of ``Schedule``; what is left out stays as it is stored,
    or is the field's default in a new one. So an operator's ``enabled=False`` or other strategy outlives the next
    deployment. A new schedule without ``lock_name`` has the one that its task declares, else one made of its name;
    without ``strategy`` it has that of the lock name where a schedule uses it, else the task's.

    The same call again changes nothing and leaves no row; several processes may call it at once. A change has a row
    in the change history, by "code (declare)". Raises ``ValidationError``, by argument, for what the form in the
    admin refuses: nothing is stored then. A running body keeps its strategy and its lock name until it has ended, as
    with an edit in the admin.
    """
    named = {
        "task": getattr(task, "name", task), "cron_expression": cron, "every_seconds": every, "once_at": at,
        "lock_name": lock_name, "strategy": strategy,
    }  # fmt: skip
    _check_fields(fields)
    given = fields | {field: value for field, value in named.items() if value is not None}
    _check_kinds({**given, "name": name})
    return put(name, given, who=SOURCE)


def _check_fields(fields: Given) -> None:
    for field in fields:
        if field not in _MORE:
            close = get_close_matches(field, {*_MORE, *_RECURRENCE.values()}, 1, 0.5)
            known = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(sorted(_MORE))}."
            raise ValidationError({field: f"There is no field {field!r}. {known}"})


def _check_kinds(given: Given) -> None:
    for field in _TEXTS:
        value = given.get(field, "")
        if not isinstance(value, str) or not can_be_stored(value):
            told = f"You gave {cut(repr(value))}; give a text without NUL and half a surrogate pair."
            raise ValidationError({field: told})
    for field in _SWITCHES:
        if not isinstance(given.get(field, True), bool):
            raise ValidationError({field: f"You gave {cut(repr(given[field]))}; give True or False."})


def put(name: str, given: Given, *, who: Who, why: str = "") -> Schedule:
    """Store the schedule ``name`` with the form's fields ``given``; as ``declare`` says."""
    name = name.strip()  # as the form does it
    known = Schedule.objects.filter(name=name).exists()
    try:
        with transaction.atomic():
            form = checked(name, given, why=why, stores=True)
            if changes(form):
                store(form, who=who)
    except (IntegrityError, ValidationError):
        # Another process may have made it after the look: then this is an edit of it.
        if known or not Schedule.objects.filter(name=name).exists():
            raise
        return put(name, given, who=who, why=why)
    return Schedule.objects.select_related("lock").get(name=name)


def checked(name: str, given: Given, *, why: str = "", stores: bool = False) -> ScheduleForm:
    """The valid form of schedule ``name`` with ``given``. Raises ``ValidationError``.

    ``stores``: what is checked stays locked until the end of the transaction.
    """
    stored = Schedule.objects.select_related("lock").filter(name=name).first()
    if stored is not None and stores:
        stored = meanwhile.hold(stored.pk, given.get("lock_name") or stored.lock_id)
    elif stores:  # whoever changes the strategy of a name that it is to share is waited for, and is not undone
        shared = LockName.objects.filter(name=given.get("lock_name") or "")
        shared.select_for_update(no_key=True).first()
    plain = {field: _plain(field, value) for field, value in given.items()}
    form = DeclaredForm(_data(name, stored, plain, why), instance=stored)
    if not form.is_valid():
        raise _refusal(form, given)
    return form


class DeclaredForm(ScheduleForm):
    keeps_task = False


def _data(name: str, stored: Schedule | None, given: Given, why: str) -> dict[str, Any]:
    """The form as it would be filled in: with what is stored, or the defaults, and over that what is given."""
    base = stored or Schedule(name=name)
    data = {field: getattr(base, field) for field in ScheduleForm.Meta.fields}
    data |= dict.fromkeys(_RECURRENCE) | dict(given) | {"reason": why}
    data["lock_name"] = given.get("lock_name") or (stored.lock_id if stored else _derived(name, data["task"]))
    # A name that no schedule uses only has what calls made of it.
    lock = LockName.objects.filter(name=data["lock_name"]).exclude(schedules=None).first()
    task = exclusive_tasks().get(data["task"])
    data["strategy"] = given.get("strategy") or (lock.alias_wanted if lock else getattr(task, "exclusive_lock", ""))
    return data


def _derived(name: str, task: str) -> str:
    try:
        return naming.derived(name, None, task)
    except ValueError:  # the form says why
        return ""


def _plain(field: str, value: Any) -> Any:
    """What is given, as the form and the database know it."""
    if field in ARGUMENTS:
        return _json(field, value)
    if field in INSTANTS:
        return _instant(field, value)
    return value.total_seconds() if isinstance(value, timedelta) else value


def _json(field: str, value: Any) -> Any:
    """As it is read again: a tuple becomes a list. The errors tell no value, which may be a secret."""
    try:
        plain = json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as refusal:
        raise ValidationError({field: f"This cannot be kept as JSON: {refusal}. Give a text or a number."}) from None
    if not isinstance(plain, ARGUMENTS[field]):
        wanted, given = ARGUMENTS[field].__name__, type(value).__name__
        raise ValidationError({field: f"This must be a {wanted}; you gave a {given}."})
    if depth(plain) > DEEPEST:
        raise ValidationError({field: f"Lists and objects are nested more than {DEEPEST} deep; nest them less."})
    return plain


def _instant(field: str, value: Any) -> datetime | None:
    if value is None:
        return None
    word = _RECURRENCE.get(field, field)
    if not isinstance(value, datetime):
        raise ValidationError({word: f"You gave {value!r}; give an aware datetime."})
    try:
        return in_utc(field, value)
    except InvalidRecurrence as problem:
        raise ValidationError({word: problem.message}) from problem


def _refusal(form: ScheduleForm, given: Given) -> ValidationError:
    """The form's errors by the arguments of the call, each with the value where it does not tell it yet."""
    told: dict[str, list[str]] = {}
    for field, errors in form.errors.items():
        if field == "strategy" and field not in given and "task" in form.errors:
            continue  # it is that of the task
        value = str(given.get(field, ""))
        sentence = " ".join(map(str, errors))
        if value and field not in ARGUMENTS and value not in sentence:
            sentence += f" You gave {cut(value)}."
        told[_RECURRENCE.get(field, field)] = [sentence]
    return ValidationError(told)
