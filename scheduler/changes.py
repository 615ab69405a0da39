"""Changes: what an operator did to a schedule, as a row that outlives the schedule and the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model

from scheduler.models import Schedule, ScheduleChange

LONGEST_REASON = 500  # characters
_PLAIN = (str, int, float, bool, list, dict, type(None))

Who = Any  # a user, or the name of whoever gave a command


class Refused(ValueError):
    """The schedule is left as it was. The message says why and what to do; the caller says which schedule."""


def checked(why: str) -> str:
    """The reason as it is kept. Raises ``Refused`` where it is too long."""
    why = why.strip()
    if len(why) > LONGEST_REASON:
        raise Refused(f"The reason has {len(why)} characters; at most {LONGEST_REASON} are kept. Shorten it.")
    return why


def note(schedule: Schedule, changed: Mapping[str, list[Any]], *, why: str, who: Who) -> ScheduleChange:
    """Store a change row: name -> [old, new], kept as JSON, instants as text. Call it in the change's transaction.

    A ``who`` that is the name of a user is linked to it; any other name is kept as it was given. Raises ``Refused``
    for a reason that is too long.
    """
    user = who if getattr(who, "pk", None) else None
    name = user.get_username() if user else str(who or "")
    if user is None and name:
        users = get_user_model()
        user = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
    return ScheduleChange.objects.create(
        schedule=schedule,
        schedule_name=schedule.name,
        changed_by=user,
        who=name[:150],
        before={name: _kept(pair[0]) for name, pair in changed.items()},
        after={name: _kept(pair[1]) for name, pair in changed.items()},
        reason=checked(why),
    )


def _kept(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else str(value)
