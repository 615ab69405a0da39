"""``GuardTable``: PostgreSQL itself refuses what is written without a valid token."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from django.db import DatabaseError, connection, models, transaction
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import MigrationWriter

from locks import StaleToken, exclusive, fence
from locks import connection as own_connection
from locks.fencing import TELL
from locks.operations import GuardTable, unguarded

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = "guarded_invoice"


class Invoice(models.Model):
    amount = models.IntegerField()

    class Meta:
        app_label = "guarded"
        db_table = TABLE
        managed = False

    def __str__(self) -> str:
        return str(self.amount)


def apply(operation: GuardTable, *, back: bool = False) -> None:
    state = ProjectState()
    with connection.schema_editor() as editor:
        (operation.database_backwards if back else operation.database_forwards)("guarded", editor, state, state)


@pytest.fixture
def name() -> str:
    return f"guard.{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def table() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {TABLE} (id serial PRIMARY KEY, amount int NOT NULL)")
        cursor.execute(f"INSERT INTO {TABLE} (amount) VALUES (1), (2)")
    apply(GuardTable(TABLE))
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def copy_in() -> None:
    connection.ensure_connection()
    with connection.connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} (amount) FROM STDIN") as copy:
        copy.write_row([7])


def bulk_update() -> None:
    invoices = list(Invoice.objects.all())
    for invoice in invoices:
        invoice.amount += 10
    Invoice.objects.bulk_update(invoices, ["amount"])


WRITES: dict[str, Callable[[], object]] = {
    "insert": lambda: sql(f"INSERT INTO {TABLE} (amount) VALUES (3)"),
    "update": lambda: sql(f"UPDATE {TABLE} SET amount = 0"),
    "an update of nothing": lambda: sql(f"UPDATE {TABLE} SET amount = 0 WHERE false"),
    "delete": lambda: sql(f"DELETE FROM {TABLE}"),
    "truncate": lambda: sql(f"TRUNCATE {TABLE}"),
    "upsert": lambda: sql(f"INSERT INTO {TABLE} VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET amount = 5"),
    "a cte": lambda: sql(f"WITH gone AS (DELETE FROM {TABLE} RETURNING 1) SELECT count(*) FROM gone"),
    "copy": copy_in,
    "the orm": lambda: Invoice.objects.create(amount=4),
    "bulk_update": bulk_update,
    "queryset update": lambda: Invoice.objects.update(amount=9),
    "queryset delete": lambda: Invoice.objects.all().delete(),
}


def code_of(error: BaseException) -> str:
    """The SQLSTATE, whether the error went through Django's cursor or psycopg's own."""
    return str(getattr(error.__cause__ or error, "sqlstate", ""))


def amounts() -> list[int]:
    return list(Invoice.objects.order_by("id").values_list("amount", flat=True))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_without_a_token_nothing_is_written(write: Callable[[], object]) -> None:
    with pytest.raises(Exception, match="no fencing token was proven") as refusal, transaction.atomic():
        write()
    assert code_of(refusal.value) == "AE001"
    assert "context.commit_guard() or locks.fence()" in str(refusal.value)
    assert amounts() == [1, 2]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_inside_a_fence_everything_is_written(write: Callable[[], object], name: str) -> None:
    with exclusive(name, using="database") as held, fence(held):
        write()
    with pytest.raises(DatabaseError, match="no fencing token"):  # the token is the transaction's, and no longer
        Invoice.objects.create(amount=4)


def test_reading_is_free() -> None:
    assert amounts() == [1, 2]


def test_a_stale_token_is_refused_by_the_table_itself(name: str) -> None:
    """Settings alone are worth nothing: the trigger proves them again."""
    with exclusive(name, using="database") as held, fence(held) as token:
        lease_id = held.lease.lease_id
    with exclusive(name, using="database") as held, fence(held):
        pass
    told = {"name": name, "token": str(token), "lease_id": str(lease_id), "idle_ms": "0"}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(TELL, told)
        with pytest.raises(DatabaseError, match=f"token {token} of lock name '{name}' is stale") as refusal:
            cursor.execute(f"DELETE FROM {TABLE}")
        transaction.set_rollback(True)
    assert code_of(refusal.value) == "AE002" and amounts() == [1, 2]


def test_the_tables_refusal_is_raised_as_a_stale_token(name: str) -> None:
    """No later start gets into an open guard, its row lock sees to it; so the settings are spoilt instead."""

    def spoilt() -> None:
        with exclusive(name, using="database") as held, fence(held), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('aegis.token', '1', true)")
            cursor.execute(f"DELETE FROM {TABLE}")

    with pytest.raises(StaleToken) as refusal:
        spoilt()
    assert refusal.value.name == name and amounts() == [1, 2]


def test_a_table_may_ask_for_one_lock_name(name: str) -> None:
    apply(GuardTable(TABLE), back=True)
    apply(GuardTable(TABLE, lock_name=name))
    with (
        pytest.raises(DatabaseError, match=rf"asks for lock name '{name}', proven was '{name}.2'"),
        exclusive(f"{name}.2", using="database") as held,
        fence(held),
    ):
        Invoice.objects.create(amount=3)
    with exclusive(name, using="database") as held, fence(held):
        Invoice.objects.create(amount=3)
    assert amounts() == [1, 2, 3]


def test_it_can_be_taken_back_and_is_written_into_migrations(name: str) -> None:
    apply(GuardTable(TABLE), back=True)
    Invoice.objects.create(amount=3)
    assert amounts() == [1, 2, 3]
    text, imports = MigrationWriter.serialize(GuardTable(TABLE, lock_name=name))
    assert "GuardTable" in text and TABLE in text and name in text
    assert any("locks.operations" in line for line in imports)
    assert GuardTable(TABLE).describe() == f"Refuse writes to {TABLE} without a valid fencing token"
    with pytest.raises(ValueError, match="Invalid lock name"):
        GuardTable(TABLE, lock_name="Not A Name")


def test_maintenance_is_let_through_for_whoever_could_drop_the_guard() -> None:
    with unguarded():
        Invoice.objects.create(amount=3)
    with transaction.atomic():
        with unguarded():
            Invoice.objects.create(amount=4)
        with pytest.raises(DatabaseError, match="no fencing token"), transaction.atomic():
            Invoice.objects.create(amount=5)
    assert amounts() == [1, 2, 3, 4]


def test_the_setting_is_worth_nothing_to_others() -> None:
    role = f"clerk_{uuid.uuid4().hex[:8]}"
    own_connection.execute(f"CREATE ROLE {role}")
    own_connection.execute(f"GRANT SELECT, INSERT ON {TABLE} TO {role}")
    own_connection.execute(f"GRANT USAGE ON SEQUENCE {TABLE}_id_seq TO {role}")
    try:
        with pytest.raises(DatabaseError, match="no fencing token"), unguarded():
            sql(f"SET LOCAL ROLE {role}; INSERT INTO {TABLE} (amount) VALUES (3)")
    finally:
        own_connection.execute(f"DROP OWNED BY {role}")
        own_connection.execute(f"DROP ROLE {role}")
    assert amounts() == [1, 2]
