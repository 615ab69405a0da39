"""One ordinary row of django-celery-beat as a beat holds it: its faults stay its own."""

from __future__ import annotations

import logging
from typing import Any

from celery.schedules import schedstate
from celery.utils.time import maybe_make_aware
from django.db import DataError
from django.db import Error as DatabaseError
from django.db.models import F
from django.utils import timezone
from django_celery_beat.schedulers import ModelEntry
from django_celery_beat.utils import NEVER_CHECK_TIMEOUT

logger = logging.getLogger("aegis.beat")


class Overtaken(Exception):
    """A row is not as it was read: another beat has fired it, or somebody disabled it, deleted it or
    changed its last run."""


class Entry(ModelEntry):
    """Theirs; a row that cannot say when it runs next stops no other, and each run is taken by one beat."""

    _is_at_fault = False

    def __init__(self, model: Any, app: Any = None) -> None:
        self._stored = model.last_run_at  # theirs puts another into the place of none
        super().__init__(model, app=app)

    def is_due(self) -> Any:
        """Never, for a row at fault: it is named once, and asked anew when the rows are read again.

        That is after an edit, and in five minutes at most. Celery before 5.7 would let an error out of the pass, and
        keeps a row that is asked and not due in front of all later ones: so it stands behind them.
        """
        if not self._is_at_fault:
            try:
                return super().is_due()
            except Exception as trouble:
                if is_away(trouble):
                    raise
                logger.exception("ordinary row %r cannot be read and is left out", self.name)
                self._is_at_fault = True
        return schedstate(False, NEVER_CHECK_TIMEOUT)

    def take(self) -> bool:
        """Store that the row runs now, and answer whether it is ours to send.

        Not where it was fired, disabled or deleted since it was read, or its last run was changed. Of beats that have
        read the same last run one gets it, whichever of them holds the lease:

            beat A                           beat B
            reads last run 9:00
            waits, stands still, ...         holds the lease now, reads 9:00
                                             9:00 -> 10:00, sends
            9:00 -> 10:00: no such row
            sends nothing

        No other column is written, so that no edit is undone. The entry itself moves on: theirs makes another, and
        the one with the last run from before stays in the schedule, where it would be due again.
        """
        row, now = self.model, self._default_now()
        unchanged = type(row)._default_manager.filter(pk=row.pk, enabled=True, last_run_at=self._stored)
        if not unchanged.update(
            last_run_at=now, total_run_count=F("total_run_count") + 1, date_changed=timezone.now()
        ):
            return False
        self._before = self._stored
        row.last_run_at = self.last_run_at = self._stored = now
        row.total_run_count += 1
        self.total_run_count = row.total_run_count
        return True

    def give_back(self) -> None:
        """Undo ``take()``, where nobody has changed it since: the message was refused, and the row is due again."""
        row = self.model
        taken = type(row)._default_manager.filter(pk=row.pk, last_run_at=self._stored)
        taken.update(last_run_at=self._before, total_run_count=F("total_run_count") - 1)

    def try_schedule(self) -> None:
        """Ask only the schedule, which stores nothing. Raises whatever is wrong with it."""
        self.schedule.is_due(maybe_make_aware(self.last_run_at).astimezone(self.app.timezone))


def is_away(trouble: Exception) -> bool:
    """Whether it is the database itself, and no value of a row."""
    return isinstance(trouble, DatabaseError) and not isinstance(trouble, DataError)
