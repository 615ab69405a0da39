"""Switching: the wanted strategy of a lock name comes into force when nothing under the name is open."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models import F

from locks import lock_backends
from scheduler.conf import conf
from scheduler.models import LockName
from scheduler.registry import declared_strategies
from scheduler.statements import dispatch

logger = logging.getLogger("aegis.ticker")


def aliases_in_force(names: Iterable[str]) -> dict[str, str]:
    """Lock the names, in order, and put wanted strategies in force where nothing is open.

    The lock is what makes "nothing is open" true: another beat that stores a tick under the name holds it until
    its commit, and the statement that looks for open ticks begins after the lock was given, so that it sees what
    was stored. A name that somebody else holds is left out, and its schedules stay due: waiting for it would let
    one forgotten transaction stop every schedule.
    """
    rows = (
        LockName.objects.filter(name__in=list(names))
        .select_for_update(no_key=True, skip_locked=True)
        .order_by("name")
    )
    aliases = {}
    for row in rows:
        aliases[row.name] = row.alias_in_force
        if row.alias_in_force != row.alias_wanted:
            with connection.cursor() as cursor:
                cursor.execute(dispatch.SWITCH_ALIAS, {"name": row.name})
                switched = cursor.fetchone()
            aliases[row.name] = switched[0] if switched else row.alias_in_force or row.alias_wanted
    return aliases


def switch_idle() -> None:
    """Put in force what is wanted, also under names of which nothing is due for long, where nothing is open."""
    pending = LockName.objects.exclude(alias_in_force="").exclude(alias_in_force=F("alias_wanted"))
    before = dict(pending.values_list("name", "alias_in_force")[: conf("BATCH")])
    with transaction.atomic():
        after = aliases_in_force(before)
    for name in after:
        if after[name] != before[name]:
            logger.info("lock name %s has strategy %s and no more %s", name, after[name], before[name])


def want_declared() -> bool:
    """Let a lock name want the strategy that its tasks declare, where no schedule says which one it is to be.

    False where somebody held a name's row, so that it has to be done again. Once done by a beat it is not done again:
    of two whose code differs, one that was forgotten would undo the other's at each look. Left alone is a name whose
    tasks do not agree, and a strategy that LOCKS does not know here. A schedule that is being declared holds the row
    of its name until it is stored, and the look for schedules begins when the row was given, so that it is seen.
    """
    known = lock_backends.aliases()
    declared = {name: {*of_tasks.values()} for name, of_tasks in declared_strategies().items()}
    agreed = {name: alias for name, (alias, *others) in declared.items() if not others and alias in known}
    rows = LockName.objects.filter(name__in=agreed, schedules=None).values_list("name", "alias_wanted")
    looked = [_want(name, agreed[name]) for name, wanted in rows if wanted != agreed[name]]
    return all(looked)


def _want(name: str, alias: str) -> bool:
    with transaction.atomic():
        row = LockName.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=name).first()
        if row is not None and not row.schedules.exists():
            LockName.objects.filter(pk=name).update(alias_wanted=alias)
            logger.warning("lock name %s: its tasks declare %s and no more %s", name, alias, row.alias_wanted)
    return row is not None
