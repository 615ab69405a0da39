"""``GuardTable``: a migration operation that makes PostgreSQL itself refuse writes without a valid fencing token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation

from .base import validate_name

TRIGGER = "aegis_locks_guard"


class GuardTable(Operation):
    """Refuse each INSERT, UPDATE, DELETE, TRUNCATE and COPY on a table outside of a valid guard.

    >>> class Migration(migrations.Migration):
    ...     dependencies = [("shop", "0007_invoice"), ("aegis_locks", "0003_tokens_and_guards")]
    ...     operations = [GuardTable("shop_invoice", lock_name="billing")]

    ``table`` is the name in the database (``Model._meta.db_table``). ``lock_name``: only its holder may write;
    left out, any proven token lets a statement through. A trigger fires once a statement, so raw SQL,
    ``bulk_update`` and forgotten code paths are seen too. PostgreSQL answers with SQLSTATE ``AE001`` (nothing was
    proven) or ``AE002`` (a later holder has started), which ``commit_guard()`` and ``fence()`` raise as
    ``StaleToken``. Cost: one look at the fence row a statement.

    Not seen: writes to a partition under its own name, and what runs with ``session_replication_role = replica``.
    For maintenance see ``unguarded``. Reversible.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(self, table: str, lock_name: str | None = None) -> None:
        self.table = table
        self.lock_name = None if lock_name is None else validate_name(lock_name)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        named = {} if self.lock_name is None else {"lock_name": self.lock_name}
        return type(self).__name__, [self.table], named

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Models do not change."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        if not self._concerns(app_label, schema_editor):
            return
        if schema_editor.connection.vendor != "postgresql":
            raise ImproperlyConfigured(
                f"GuardTable({self.table!r}): database {schema_editor.connection.alias!r} is no PostgreSQL."
            )
        argument = "" if self.lock_name is None else schema_editor.quote_value(self.lock_name)
        schema_editor.execute(
            f"CREATE TRIGGER {TRIGGER} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE"
            f" ON {schema_editor.quote_name(self.table)}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION aegis_locks_guard_table({argument})"
        )

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        if self._concerns(app_label, schema_editor):
            schema_editor.execute(f"DROP TRIGGER {TRIGGER} ON {schema_editor.quote_name(self.table)}")

    def describe(self) -> str:
        return f"Refuse writes to {self.table} without a valid fencing token"

    @property
    def migration_name_fragment(self) -> str:
        return f"guard_{self.table.lower()}"

    def _concerns(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        return bool(router.allow_migrate(schema_editor.connection.alias, app_label))


@contextmanager
def unguarded(*, using: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """A transaction that may write to guarded tables without a token: data migrations, repairs, fixtures.

    It sets ``aegis.maintenance`` to ``on`` for this transaction. The setting counts only for a role that could
    drop the trigger as well: a superuser, or a member of the role that owns the table. For whole test databases
    put it into the connection: ``DATABASES[...]["OPTIONS"]["options"] = "-c aegis.maintenance=on"``.
    """
    with transaction.atomic(using=using):
        before = _maintenance(using, "on")
        yield
        _maintenance(using, before)  # an outer block goes on as it was


def _maintenance(using: str, value: str) -> str:
    """Set ``aegis.maintenance`` for this transaction; returns what it was."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT coalesce(current_setting('aegis.maintenance', true), '')")
        before: str = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('aegis.maintenance', %s, true)", [value])
    return before
