"""``OPTIONS["assume_role"]``: a login role that has no rights of its own, and takes another's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, connections

from locks import connection as ours
from locks import lock_backends
from tests.contract.wires import WIRED, wired_database

pytestmark = pytest.mark.django_db(transaction=True)

LOGIN = "aegis_login"
PASSWORD = secrets.token_hex(16)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture(params=["aegis_owner", 'Owner\'s \\ of "all" -c x=y'])
def owner(request: pytest.FixtureRequest) -> Iterator[str]:
    """A role that may do everything here, and LOGIN, which may do nothing but become it."""
    quoted = '"' + request.param.replace('"', '""') + '"'
    sql(f"CREATE ROLE {quoted}; CREATE ROLE {LOGIN} LOGIN NOINHERIT PASSWORD '{PASSWORD}'; GRANT {quoted} TO {LOGIN}")
    for kind in ("TABLES", "SEQUENCES"):
        sql(f"GRANT ALL ON ALL {kind} IN SCHEMA public TO {quoted}")
    yield request.param
    sql(f"DROP OWNED BY {quoted}; DROP ROLE {LOGIN}; DROP ROLE {quoted}")


@pytest.fixture
def entry(owner: str) -> Iterator[dict[str, object]]:
    """The entry of the database ``wired``, reached as LOGIN."""
    with wired_database():
        connections.settings[WIRED] |= {"USER": LOGIN, "PASSWORD": PASSWORD, "OPTIONS": {"assume_role": owner}}
        yield connections.settings[WIRED]


def test_our_connections_take_the_role(entry: dict[str, object], owner: str) -> None:
    assert ours.execute("SELECT session_user::text, current_user::text", using=WIRED) == [(LOGIN, owner)]


@pytest.mark.parametrize("alias", ["database", "optimistic", "advisory", "row_lock"])
def test_a_lease_is_granted_to_such_a_role(entry: dict[str, object], alias: str) -> None:
    given = lock_backends[alias]
    backend = type(given)(WIRED, {**given.params, "LOCATION": WIRED})
    lease = backend.acquire("tests.assume-role")
    assert lease is not None and backend.release(lease)


def test_without_the_option_such_a_role_may_do_nothing(entry: dict[str, object]) -> None:
    entry["OPTIONS"] = {}
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ours.execute("SELECT count(*) FROM aegis_locks_fence", using=WIRED)
