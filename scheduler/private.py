"""What tasks are given and what bodies raise may hold anything: it is shown to those who may see it and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PERMISSION = "aegis_scheduler.view_arguments"
FIELDS = frozenset({"args", "kwargs", "call_options", "error"})
"""Names of columns, and of what a change row tells of."""

HIDDEN = "(hidden)"


def may_see(user: Any) -> bool:
    """Whether these fields are shown to the user."""
    return bool(user.has_perm(PERMISSION))


def without(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name, with a word in the place of those that are private."""
    return {name: HIDDEN if name in FIELDS else value for name, value in values.items()}
