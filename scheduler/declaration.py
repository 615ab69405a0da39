"""What ``@exclusive_task`` is given, looked at where it is written: each refusal is an ``InvalidExclusiveTask``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from locks.base import validate_name, validate_ttl
from locks.exclusive import returns_early
from scheduler.exceptions import InvalidExclusiveTask

# Of Celery's retry(): what a next attempt may be told.
RETRIES = frozenset({"countdown", "eta", "max_retries", "throw"})


def check_lock(function: Callable[..., Any], options: dict[str, Any]) -> None:
    """A lock name and a TTL that can be used."""
    try:
        if options.get("lock_name") is not None:
            validate_name(options["lock_name"])
        if options.get("ttl") is not None:
            validate_ttl(options["ttl"])
    except ValueError as refusal:
        raise InvalidExclusiveTask(f"{function.__qualname__}: {refusal}") from refusal


def strategy_of(function: Callable[..., Any], strategy: str | None, lock: str | None) -> str:
    """The alias of LOCKS. ``lock`` is the name that the option had before: elsewhere that is a lock name."""
    if strategy is not None and lock is not None:
        raise InvalidExclusiveTask(
            f"{function.__qualname__}: strategy={strategy!r} and lock={lock!r} are one option; give only strategy"
        )
    given = lock if strategy is None else strategy
    return "default" if given is None else given


def check_retries(function: Callable[..., Any], options: dict[str, Any]) -> None:
    """``autoretry_for`` hands its ``retry_kwargs`` to ``retry()``, which would refuse them where the body failed."""
    unknown = sorted(set(options.get("retry_kwargs") or ()) - RETRIES)
    if unknown:
        raise InvalidExclusiveTask(
            f"{function.__qualname__}: retry_kwargs cannot change {', '.join(unknown)}: the next attempt is sent as "
            f"this one was. Use only {', '.join(sorted(RETRIES))}."
        )


def choice(
    function: Callable[..., Any], choices: type[StrEnum], option: str, value: Any, *, optional: bool = False
) -> Any:
    """The value as one of ``choices``."""
    if value is None and optional:
        return None
    try:
        return choices(value)
    except ValueError as unknown:
        known = ", ".join(repr(one.value) for one in choices)
        raise InvalidExclusiveTask(f"{function.__qualname__}: {option}={value!r}: choose one of {known}") from unknown


def arguments_of(function: Callable[..., Any], *, skip: int) -> Callable[..., Any]:
    """A checker of the arguments that callers give: those after ``self`` and ``context``."""
    if returns_early(function):
        raise InvalidExclusiveTask(
            f"{function.__qualname__} is a coroutine or generator function: Celery would never run its body. Declare "
            "a plain function, and run a coroutine inside it, for example with asyncio.run()."
        )
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    taken = [p for p in parameters[:skip] if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(taken) < skip:
        names = "(self, context, ...)" if skip == 2 else "(context, ...)"
        raise InvalidExclusiveTask(f"{function.__qualname__} must take {names}: the body is given its RunContext")
    return signature.replace(parameters=parameters[skip:]).bind
