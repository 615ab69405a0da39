"""The tables behind the backends that use PostgreSQL, and the fence.

Rows are changed by the guarded statements of the backends only, never through ``save()``: the admin shows
them read-only. Free rows carry ``'epoch'`` and not ``'-infinity'``, with which PostgreSQL before 17 cannot
calculate. A row stays for ever once a name was used, because a deleted row would forget the last token of
its name.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models
from django.db.models import Q, Value
from django.utils.translation import gettext_lazy as _

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOKEN_SEQUENCE = "aegis_locks_token"  # noqa: S105  (a name, not a secret)
STORED_NAME_LENGTH = 255  # a KEY_PREFIX, a colon and a lock name
STORED_NAME = r"^[a-z0-9._:-]+$"
"""The length is for the column's type to refuse: with ``{1,255}`` PostgreSQL would go through 255 states at each
update of each row, which took as long as all the rest of the statement.
"""


def _name_is_valid(table: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(name__regex=STORED_NAME), name=f"{table}_name_valid")


class LeaseRecord(models.Model):
    """One name of the ``database`` backend: held while ``expires_at`` is ahead of the database's clock."""

    name = models.CharField(
        max_length=STORED_NAME_LENGTH,
        primary_key=True,
        help_text=_("Lock name, with the key prefix of its alias."),
    )
    lease_id = models.UUIDField(null=True, help_text=_("Random id of the acquisition that holds it. Empty: free."))
    token = models.BigIntegerField(
        default=0, db_default=0, help_text=_("Number of the last grant. Grows with each grant of this name.")
    )
    holder = models.CharField(
        max_length=200, default="", db_default="", help_text=_("Host, process and thread, for people only.")
    )
    acquired_at = models.DateTimeField(null=True, help_text=_("By the database's clock."))
    expires_at = models.DateTimeField(
        default=EPOCH,
        db_default=Value(EPOCH),
        help_text=_("By the database's clock. A lease past it is dead, also when nobody took it over."),
    )

    class Meta:
        db_table = "aegis_locks_lease"
        verbose_name = _("lease")
        ordering = ["name"]
        constraints = [
            _name_is_valid("aegis_locks_lease"),
            models.CheckConstraint(
                condition=Q(lease_id__isnull=False) | Q(expires_at=EPOCH),
                name="aegis_locks_lease_free_is_expired",
            ),
            models.CheckConstraint(
                condition=Q(lease_id__isnull=True) | Q(token__gt=0, acquired_at__isnull=False),
                name="aegis_locks_lease_held_is_numbered",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ClaimRecord(models.Model):
    """One name of the ``optimistic`` backend: ``version`` decides, ``closes_at`` asks others to keep away."""

    name = models.CharField(
        max_length=STORED_NAME_LENGTH,
        primary_key=True,
        help_text=_("Lock name, with the key prefix of its alias."),
    )
    version = models.BigIntegerField(
        default=0, db_default=0, help_text=_("Number of the last claim. A claim is good while it stands.")
    )
    lease_id = models.UUIDField(null=True, help_text=_("Random id of the last claim that was not given back."))
    holder = models.CharField(
        max_length=200, default="", db_default="", help_text=_("Host, process and thread, for people only.")
    )
    acquired_at = models.DateTimeField(null=True, help_text=_("By the database's clock."))
    closes_at = models.DateTimeField(
        default=EPOCH,
        db_default=Value(EPOCH),
        help_text=_("End of the claim window, by the database's clock. Others are refused before it."),
    )

    class Meta:
        db_table = "aegis_locks_claim"
        verbose_name = _("claim")
        ordering = ["name"]
        constraints = [
            _name_is_valid("aegis_locks_claim"),
            # Makes `version` a key column: a transaction that has proven it with FOR KEY SHARE holds a
            # later claim back.
            models.UniqueConstraint(fields=["name", "version"], name="aegis_locks_claim_name_version"),
            models.CheckConstraint(
                condition=Q(lease_id__isnull=False) | Q(closes_at=EPOCH),
                name="aegis_locks_claim_free_is_closed",
            ),
            models.CheckConstraint(
                condition=Q(lease_id__isnull=True) | Q(version__gt=0, acquired_at__isnull=False),
                name="aegis_locks_claim_held_is_numbered",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AdvisoryRecord(models.Model):
    """One name of the ``advisory`` backend, beside the number that stands for it in the database's list of locks.

    The registry that makes a collision of two names an error. Whether a name is held, by whom and since when is told
    by the session that holds it, and nowhere else.
    """

    name = models.CharField(
        max_length=STORED_NAME_LENGTH,
        primary_key=True,
        help_text=_("Lock name, with the key prefix of its alias."),
    )
    key = models.BigIntegerField(help_text=_("Key of the advisory lock, calculated from the name."))

    class Meta:
        db_table = "aegis_locks_advisory"
        verbose_name = _("advisory lock")
        ordering = ["name"]
        constraints = [
            _name_is_valid("aegis_locks_advisory"),
            models.UniqueConstraint(fields=["key"], name="aegis_locks_advisory_key_unique"),
        ]

    def __str__(self) -> str:
        return self.name


class FenceRecord(models.Model):
    """The fence of one lock name, for every strategy that has one: who may still write.

    Raised by the statement that starts an execution. ``token`` is this row's own counter and the only
    number that writers are judged by; ``grant_no`` is the store's number of the grant that raised it last,
    kept so that a start out of grant order is refused. Numbers of two stores are never compared: ``alias`` holds the
    alias of that grant and a digest of its store, see ``locks.backends.numbering``.
    """

    name = models.CharField(max_length=STORED_NAME_LENGTH, primary_key=True, help_text=_("Lock name."))
    token = models.BigIntegerField(default=0, db_default=0, help_text=_("Fencing token of the latest start."))
    alias = models.CharField(  # noqa: DJ001  (NULL: never raised, which no alias can say)
        max_length=100, null=True, help_text=_("Strategy under which it was raised last.")
    )
    grant_no = models.BigIntegerField(null=True, help_text=_("The store's number of that grant, where it has one."))
    lease_id = models.UUIDField(null=True, help_text=_("The acquisition that raised it last."))

    class Meta:
        db_table = "aegis_locks_fence"
        verbose_name = _("fence")
        ordering = ["name"]
        constraints = [
            _name_is_valid("aegis_locks_fence"),
            # Makes `token` a key column: raising it waits for transactions that have proven it with FOR KEY
            # SHARE.
            models.UniqueConstraint(fields=["name", "token"], name="aegis_locks_fence_name_token"),
            models.CheckConstraint(condition=Q(token__gte=0), name="aegis_locks_fence_token_counts"),
        ]

    def __str__(self) -> str:
        return self.name
