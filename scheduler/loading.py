"""Load rows so that one that cannot be read costs the others nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from django.core.exceptions import ValidationError
from django.db import DataError, models

M = TypeVar("M", bound=models.Model)

# What a value raises that the database keeps and Python, or its field, has no place for.
UNLOADABLE = (DataError, ValueError, RecursionError, ValidationError)


def loaded(rows: models.QuerySet[M], ids: Collection[int]) -> tuple[dict[int, M], dict[int, Exception]]:
    """The rows with these primary keys, and of those that cannot be loaded what is wrong with each.

    One query; one for each row where any of them cannot be loaded.
    """
    try:
        return rows.in_bulk(ids), {}
    except UNLOADABLE:
        pass
    found: dict[int, M] = {}
    problems: dict[int, Exception] = {}
    for pk in ids:
        try:
            found |= rows.in_bulk([pk])
        except UNLOADABLE as problem:
            problems[pk] = problem
    return found, problems
