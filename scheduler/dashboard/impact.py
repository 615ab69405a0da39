"""What the project says that collisions did to its business: a function of the project's own, asked with care.

``AEGIS["IMPACT"]`` names it by its dotted path. It is called with a ``Window`` (aware ``start`` and ``end``) and
returns sentences, or ``Impact`` rows. It may be wrong or slow: that costs its sentences, never the page.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from django.db import connection, transaction
from django.utils.module_loading import import_string

from scheduler.charts import Window
from scheduler.conf import conf

logger = logging.getLogger("aegis.dashboard")

# Sentences shown, and letters of one.
MOST = 8
LONGEST = 300
# Milliseconds that one statement of the function may take.
PATIENCE = 1_000


@dataclass(frozen=True, slots=True)
class Impact:
    """One sentence; ``bad`` says that it tells of harm."""

    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the function said. ``trouble``: why it said nothing, for the page."""

    told: tuple[Impact, ...] = ()
    trouble: str = ""


def function() -> Callable[[Window], Iterable[str | Impact]] | None:
    """The function that is set. Raises ``ImportError`` where there is none of that name, ``TypeError`` for others."""
    path = conf("IMPACT")
    if not path:
        return None
    found = import_string(path)
    if not callable(found):
        raise TypeError(f"{path} is not a function")
    return found


def impact(window: Window) -> Answer:
    """Ask it. Its statements on the default database end after a second, and what it wrote is undone."""
    try:
        asked = function()
        return Answer() if asked is None else Answer(told=_ask(asked, window))
    except Exception as trouble:  # whatever a project's function raises
        logger.exception("AEGIS['IMPACT'] failed")
        return Answer(trouble=f"The figures of AEGIS['IMPACT'] are missing: it failed ({type(trouble).__name__}).")


def _ask(asked: Callable[[Window], Iterable[str | Impact]], window: Window) -> tuple[Impact, ...]:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {PATIENCE}")
        told = tuple(_read(one) for one in islice(asked(window), MOST))
        transaction.set_rollback(True)
        return told


def _read(one: str | Impact) -> Impact:
    if not isinstance(one, Impact):
        one = Impact(str(one))
    return Impact(one.text[:LONGEST], one.bad)
