"""What PostgreSQL keeps and Python cannot read: refused by a constraint, or read as its text.

One such row would spoil every list that it stands in: a beat's batch, a page, the answer of a command.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.models import Q

DEEPEST = 500  # levels of JSON: Python has a stack for 1,000 calls, and whoever reads has calls of its own on it
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def in_calendar(*fields: str) -> Q:
    """Each of the instants is unknown, or one of Python's calendar: not infinite, and of the years 1 to 9999."""
    return Q(*[(f"{field}__range", (FIRST, LAST)) for field in fields])


class Json(models.JSONField):
    """JSON of which a value that Python cannot read is given as its text, as Django does with what is no JSON.

    PostgreSQL keeps numbers of more than 4,300 digits, and deeper lists than Python has a stack for.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            found = super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return value
        brackets = value.count("[") + value.count("{") if isinstance(value, str) else 0
        return value if brackets > DEEPEST and depth(found) > DEEPEST else found

    def deconstruct(self) -> Any:
        """As Django's own field, which it is to the database: no migration."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


def depth(value: Any) -> int:
    """How many lists and objects are around the innermost value."""
    deep, level = -1, [value]
    while level:
        deep += 1
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [value for values in inner for value in values]
    return deep
