"""Limits on what one user may do in a minute, counted from the audit rows in the database.

So they hold over any number of web processes and survive their restarts. Whoever counts holds the user's row
until the new audit row is stored: two requests of one user at once cannot both be the last that is allowed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.db.models.functions import Now

from scheduler.changes import Refused
from scheduler.conf import DEFAULTS, conf

WINDOW = timedelta(minutes=1)


class TooOften(Refused):
    """The user has done this as often as a minute allows."""


def limit_of(kind: str) -> int:
    """How often one user may do ``kind`` in a minute."""
    return int({**DEFAULTS["RATE_LIMITS"], **conf("RATE_LIMITS")}[kind])


def hold(who: Any) -> Any:
    """Hold the row of the user ``who`` until the transaction ends; returns ``who``. A name from a shell has none."""
    if getattr(who, "pk", None):
        get_user_model()._default_manager.select_for_update(no_key=True).get(pk=who.pk)
    return who


def admit(who: Any, kind: str, done: QuerySet[Any], stamp: str) -> None:
    """Refuse ``who`` if ``done``, their audit rows, has as many of the last minute as are allowed.

    Call it in the transaction that stores the next row. ``stamp`` is the name of the rows' instant. A command line
    is not limited: whoever has a shell here has the database as well. Raises ``TooOften``.
    """
    if not getattr(hold(who), "pk", None):
        return
    most = limit_of(kind)
    if done.filter(**{f"{stamp}__gt": Now() - WINDOW}).count() >= most:
        raise TooOften(f"You have done this {most} times within a minute, which is the limit. Wait and try again.")
