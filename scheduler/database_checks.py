"""System checks of ``DATABASES["default"]``, on which beats store ticks and workers their runs. Opens no connection.

Whoever stores ticks locks a name and looks for open ticks with the next statement, which has to see what others have
committed meanwhile; the steps of a beat are single statements that nobody commits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import IsolationLevel

_WHERE = f"DATABASES[{DEFAULT_DB_ALIAS!r}]"
_STARTUP = re.compile(r"(?:-c\s*|--)default[_-]transaction[_-]isolation=((?:\\.|\S)+)", re.IGNORECASE)


def check_database(**kwargs: Any) -> list[CheckMessage]:
    """READ COMMITTED and autocommit, which are Django's defaults."""
    return list(_problems(connections[DEFAULT_DB_ALIAS].settings_dict))


def _problems(entry: Mapping[str, Any]) -> Iterator[CheckMessage]:
    level = _isolation(entry["OPTIONS"])
    if level != "read committed":
        yield Error(
            f"{_WHERE} runs its transactions at {level.upper()}: a beat would not see what others have committed.",
            hint=f"Remove the isolation level from the OPTIONS of {_WHERE}; give another alias to what needs it.",
            id="aegis.scheduler.E011",
        )
    if not entry["AUTOCOMMIT"]:
        yield Error(
            f"{_WHERE}['AUTOCOMMIT'] is {entry['AUTOCOMMIT']!r}: what a beat does would never be committed.",
            hint="Remove it; True is Django's default.",
            id="aegis.scheduler.E012",
        )


def _isolation(options: Mapping[str, Any]) -> str:
    """As Django reads it: its own option goes before what is sent at start-up."""
    if "isolation_level" in options:
        try:
            return IsolationLevel(options["isolation_level"]).name.replace("_", " ").lower()
        except ValueError:
            return repr(options["isolation_level"])
    given = _STARTUP.findall(str(options.get("options", "")))
    return str(given[-1]).replace("\\", "").lower() if given else "read committed"
