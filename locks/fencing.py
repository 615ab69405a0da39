"""The fence: a former holder cannot write after a later one has started.

One row per lock name, raised by the statement that starts an execution. A writer proves its token at the
beginning of the transaction that holds its effects:

    holder A: BEGIN; prove(7) locks the fence row FOR KEY SHARE ... writes ... COMMIT
    holder B: start wants to raise the fence to 8, waits for A's COMMIT, and only then begins
    holder A': (woken up later) BEGIN; prove(7) finds 8: StaleToken, nothing is written

So a stale commit lands wholly before the next holder's start, or not at all; no clock is in the argument.
Checking the token without the row lock would let A commit between B's start and B's first read.
"""

from __future__ import annotations

from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections

from . import connection
from .base import validate_name
from .exceptions import StaleToken

# In: name. Two sessions may seed at once; either is fine.
SEED = "INSERT INTO aegis_locks_fence (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING"
CURRENT = "SELECT token FROM aegis_locks_fence WHERE name = %(name)s"
# In: name, token, lease_id. Out: one row while no later start has raised the fence; that row stays locked
# until the end of the transaction. Waits for a start that is raising it at the moment.
PROVE = """
SELECT 1 FROM aegis_locks_fence
WHERE name = %(name)s AND token = %(token)s AND lease_id = %(lease_id)s FOR KEY SHARE
"""


def seed(name: str, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Make the fence row of ``name`` if there is none. A missing row must never look like a stale token."""
    connection.execute(SEED, {"name": validate_name(name)}, using=using)


def current(name: str, *, using: str = DEFAULT_DB_ALIAS) -> int | None:
    """The token of the latest start under ``name``: 0 before the first, ``None`` without a fence row."""
    rows = connection.execute(CURRENT, {"name": validate_name(name)}, using=using)
    return rows[0][0] if rows else None


def prove(name: str, token: int, lease_id: UUID, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Prove in the caller's transaction that ``token`` is still the latest; hold later starts back until it
    ends.

    Call it first in ``transaction.atomic()`` on the same database as the writes, before anything is read.
    Raises ``StaleToken`` otherwise, and ``RuntimeError`` outside a transaction, where the row lock would be
    gone at once.
    """
    django_connection = connections[using]
    if not django_connection.in_atomic_block:
        raise RuntimeError("fencing.prove() must be called inside transaction.atomic(): it locks a row.")
    with django_connection.cursor() as cursor:
        cursor.execute(PROVE, {"name": validate_name(name), "token": token, "lease_id": lease_id})
        if cursor.fetchone() is None:
            raise StaleToken(f"Lock {name!r}: fencing token {token} is stale, a later holder has started.", name=name)
