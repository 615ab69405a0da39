"""One ordinary row of django-celery-beat as a beat holds it: its faults stay its own."""

from __future__ import annotations

import logging
from typing import Any

from celery.schedules import schedstate
from celery.utils.time import maybe_make_aware
from django.db import DataError
from django.db import Error as DatabaseError
from django.utils import timezone
from django_celery_beat.models import PeriodicTasks
from django_celery_beat.schedulers import ModelEntry
from django_celery_beat.utils import NEVER_CHECK_TIMEOUT

logger = logging.getLogger("aegis.beat")


class Entry(ModelEntry):
    """Theirs; a row that cannot say when it runs next stops no other, and storing a last run undoes no edit."""

    _is_at_fault = False

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

    def save(self) -> None:
        """Store the last run and the count of a row that is still enabled.

        Theirs reads the row and writes every column back, and so enables a row that is disabled in between. One that
        is disabled has no last run: enabled again, it does not fire what passed.
        """
        row = self.model
        type(row)._default_manager.filter(pk=row.pk, enabled=True).update(
            last_run_at=row.last_run_at, total_run_count=row.total_run_count, date_changed=timezone.now()
        )
        PeriodicTasks.changed(row)

    def try_schedule(self) -> None:
        """Ask only the schedule, which stores nothing. Raises whatever is wrong with it."""
        self.schedule.is_due(maybe_make_aware(self.last_run_at).astimezone(self.app.timezone))


def is_away(trouble: Exception) -> bool:
    """Whether it is the database itself, and no value of a row."""
    return isinstance(trouble, DatabaseError) and not isinstance(trouble, DataError)
