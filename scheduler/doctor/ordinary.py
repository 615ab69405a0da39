"""Ordinary django-celery-beat rows that no beat can read, and so none fires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_celery_beat.models import PeriodicTask

from locks import Finding
from locks.findings import fail
from scheduler.doctor.report import named
from scheduler.loading import loaded
from scheduler.ordinary_entry import Entry

TOPIC = "schedules"


class _Looked(Entry):
    """An entry as a beat makes it, which stores nothing of what it finds."""

    def _disable(self, model: Any) -> None:
        pass


def judge() -> Iterator[Finding]:
    """Raises what the database raises."""
    rows = PeriodicTask.objects.filter(enabled=True)
    names = dict(rows.values_list("pk", "name"))
    found, problems = loaded(rows, names)
    left_out = [names[pk] for pk in problems] + [row.name for row in found.values() if not _is_read(row)]
    if left_out:
        yield fail(
            TOPIC, f"{named(left_out)}: a row of django-celery-beat that cannot be read, so that no beat fires it",
            "Correct it. What is wrong with it is in the log of the beat that fires these rows.",
        )  # fmt: skip


def _is_read(row: Any) -> bool:
    try:
        _Looked(row).try_schedule()
    except Exception:  # whatever it is, a beat leaves the row out
        return False
    return True
