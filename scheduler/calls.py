"""A call: a message of an exclusive task that no schedule sent, and what its next attempts must repeat of it.

Celery's own retry sends the message again under its task id, with its callbacks and the rest of its chain. Here a
beat sends it, from the tick. Without what is kept here, whoever waits for the call would wait for ever after a retry:
the result would be stored under another id, and the rest of the chain, or the chord, would be forgotten.
"""

from __future__ import annotations

from typing import Any

PREFIX = "call:"

# Of the request -> of ``send_task``.
_KEPT = {
    "callbacks": "link",
    "errbacks": "link_error",
    "chain": "chain",
    "chord": "chord",
    "group": "group_id",
    "group_index": "group_index",
    "root_id": "root_id",
    "parent_id": "parent_id",
    "reply_to": "reply_to",
    "ignore_result": "ignore_result",
}


def key_of(task_id: str) -> str:
    """The key of the tick of a call: a message that comes twice finds the tick that the first one made."""
    return f"{PREFIX}{task_id}"


def task_id_of(manual_key: str | None) -> str | None:
    """The task id of the call that made a tick; None for a tick that no call made."""
    return manual_key.removeprefix(PREFIX) if manual_key is not None and manual_key.startswith(PREFIX) else None


def options_of(request: Any) -> dict[str, Any]:
    """What is to be repeated of a request: options of ``send_task`` that Celery's JSON carries."""
    found = {option: getattr(request, name, None) for name, option in _KEPT.items()}
    # Before Celery 5.7 a request knows its limits as this pair only.
    found["time_limit"], found["soft_time_limit"] = getattr(request, "timelimit", None) or (None, None)
    return {option: value for option, value in found.items() if not (value is None or value is False or value == [])}
