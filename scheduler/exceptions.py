"""What can go wrong in the scheduler, apart from what ``locks`` raises."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured


class SchedulerError(Exception):
    """Base of the scheduler's errors; do not raise it directly."""


class LedgerUnavailable(SchedulerError):
    """The database could not say whether a state change happened. No body is entered on such an answer."""


class TickGone(SchedulerError):
    """The tick or the fence row that a delivery names does not exist."""


class InvalidExclusiveTask(ImproperlyConfigured):
    """A task was declared exclusive with options that cannot be honoured."""
