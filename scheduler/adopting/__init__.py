"""Adopting rows of django-celery-beat: each becomes a schedule, disabled at first, and is then changed over."""

from __future__ import annotations


class Unfit(ValueError):
    """The row stays a row. The message says why and what to do."""


class Ordinary(Unfit):
    """The task of the row is not exclusive: the row may stay one for ever."""
