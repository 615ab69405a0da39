"""Stored: the base of everything that Aegis keeps in the database ``default``."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

from django.db import DEFAULT_DB_ALIAS, models

M = TypeVar("M", bound=models.Model)


class OnDefault(models.Manager[M]):
    """Asks no router where the rows are, so that catalog and ledger are never read from a replica that lags.

    Timeline: somebody asks for a run; its tick is stored; a router sends the next read to a replica, which has not
    heard of it yet, and the page ends in an error.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().using(self._db or DEFAULT_DB_ALIAS)


class Stored(models.Model):
    """A model of the catalog or the ledger."""

    objects: ClassVar[OnDefault[Self]] = OnDefault()

    class Meta:
        abstract = True
        base_manager_name = "objects"  # what follows a foreign key, or reads a row anew
