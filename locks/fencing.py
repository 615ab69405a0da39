"""The fence: a former holder cannot write after a later one has started.

One row per lock name, raised by the statement that starts an execution, or by the first ``fence()`` of a holder
without one. A writer proves its token at the beginning of the transaction that holds its effects:

    holder A: BEGIN; prove(7) locks the fence row FOR KEY SHARE ... writes ... COMMIT
    holder B: start wants to raise the fence to 8, waits for A's COMMIT, and only then begins
    holder A': (woken up later) BEGIN; prove(7) finds 8: StaleToken, nothing is written

So a stale commit lands wholly before the next holder's start, or not at all; no clock is in the argument.
Checking the token without the row lock would let A commit between B's start and B's first read.

Proven is: no later holder had raised the fence *in this database* before this transaction's commit. Not proven:
that the lease has not expired, what was read outside of the guard, anything in another database or system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction

from . import connection
from .base import validate_name
from .clock import boottime
from .exceptions import LockUnavailable, StaleToken

if TYPE_CHECKING:
    from .keepalive import Kept

# In: name. Two sessions may seed at once; either is fine.
SEED = "INSERT INTO aegis_locks_fence (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING"
CURRENT = "SELECT token FROM aegis_locks_fence WHERE name = %(name)s"
# In: name, token, lease_id. Out: one row while no later start has raised the fence; that row stays locked
# until the end of the transaction. Waits for a start that is raising it at the moment.
PROVE = """
SELECT 1 FROM aegis_locks_fence
WHERE name = %(name)s AND token = %(token)s AND lease_id = %(lease_id)s FOR KEY SHARE
"""
# In: name, numbering, grant_no or NULL, lease_id. Out: the token, whether it was raised now or before; no row: the
# name has no fence row yet, or a later grant has raised it. Waits for open guards of the former holder. Where the
# store numbers its grants, a grant older than the one that raised the fence last raises nothing.
RAISE = """
WITH raised AS (
    UPDATE aegis_locks_fence SET token = greatest(token + 1, aegis_locks_next_token()), alias = %(numbering)s,
        grant_no = %(grant_no)s::bigint, lease_id = %(lease_id)s
    WHERE name = %(name)s AND lease_id IS DISTINCT FROM %(lease_id)s
      AND (alias IS DISTINCT FROM %(numbering)s OR grant_no IS NULL OR %(grant_no)s::bigint IS NULL
           OR grant_no < %(grant_no)s::bigint)
    RETURNING token)
SELECT token FROM raised
UNION ALL SELECT token FROM aegis_locks_fence WHERE name = %(name)s AND lease_id = %(lease_id)s
"""
# In: name, token, lease_id. Out: one row unless this database has seen a later token, or another holder of the
# same one. For a database that is not the one in which the token was raised.
CARRY = """
INSERT INTO aegis_locks_fence AS f (name, token, lease_id) VALUES (%(name)s, %(token)s, %(lease_id)s)
ON CONFLICT (name) DO UPDATE
SET token = excluded.token, lease_id = excluded.lease_id, alias = NULL, grant_no = NULL
WHERE f.token < excluded.token OR (f.token = excluded.token AND f.lease_id = excluded.lease_id)
RETURNING f.token
"""
# In: idle_ms, name, token, lease_id. Out: the isolation level. All for this transaction only. The trigger of
# GuardTable reads what is told here and proves it again.
TELL = """
SELECT current_setting('transaction_isolation'),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true),
       set_config('aegis.name', %(name)s, true),
       set_config('aegis.token', %(token)s, true),
       set_config('aegis.lease_id', %(lease_id)s, true)
"""

_STALE = "AE002"  # what GuardTable's trigger answers
_LONGEST_IDLE = 2**31 - 1  # milliseconds; the server's own bound on a time-out
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0  # seconds until a database that refused is asked again; doubled each time


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a holder shows to the fence. ``ttl`` (seconds) bounds how long it may sit idle inside a guard."""

    name: str
    token: int
    lease_id: UUID
    ttl: float


@contextmanager
def fence(held: Kept, *, using: str = DEFAULT_DB_ALIAS) -> Iterator[int]:
    """A transaction on ``using`` that a former holder cannot commit. Yields the fencing token.

    >>> with exclusive("nightly-export") as held:
    ...     rows = collect()
    ...     with fence(held):
    ...         Report.objects.bulk_create(rows)

    The holder's first ``fence()`` raises the fence in database ``default``, its first one elsewhere raises it there
    to the same token, and each one proves it. Reads that feed a write belong inside. When a holder freezes:

        A: enters exclusive(), fence(): token 7, commits     A: enters exclusive(), freezes before any fence()
        A: freezes past its TTL                              B: enters exclusive(), fence(): token 7, commits
        B: enters exclusive(), fence(): token 8, commits     A: wakes up, fence(): its lease is over, LeaseLost
        A: wakes up, fence(): 7 is not 8, StaleToken

    On the right side A looks at its trust window before it raises the fence and after. Should it freeze exactly
    between the look and the statement, a backend that numbers its grants (``grant_numbers``) still refuses it; one
    that does not lets it raise the fence over B, and then *B's* next ``fence()`` is stale: the rightful work
    stops, but the two never interleave.

    Raises ``StaleToken``, ``LeaseLost``, ``LockUnavailable`` where the fence cannot be raised, ``RuntimeError``
    inside another transaction, and ``ImproperlyConfigured`` for a backend without a fence (``none``), an isolation
    level other than READ COMMITTED, or where ``using`` or ``default`` is without this app's tables.
    """
    proof = _proof_of(held, using)
    with proven(proof, using=using):
        yield proof.token


@contextmanager
def proven(proof: Proof, *, using: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """A durable transaction whose first statements prove ``proof``; errors as for ``fence``.

    A holder that freezes inside would keep every later start waiting, so the server ends a session that sits idle
    in it for nine tenths of the TTL. Do nothing slow in it that is no database work.
    """
    _refuse_inside_transaction(proof.name, using)
    with _stale_by_its_name(proof), transaction.atomic(using=using, durable=True):
        _tell(proof, using)
        prove(proof.name, proof.token, proof.lease_id, using=using)
        yield
        if _is_nested(using):
            _untell(using)


def carry(proof: Proof, *, using: str, check: Callable[[], None]) -> None:
    """Raise the fence of another database to a token that was raised at home.

    Asked once per run and database. Raises ``StaleToken`` where that database has seen a later start.
    """
    params = {"name": proof.name, "token": proof.token, "lease_id": proof.lease_id}
    if not _execute(CARRY, params, using=using, ttl=proof.ttl, check=check):
        raise _stale(proof.name, proof.token)


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
            raise _stale(name, token)


def no_fence(name: str, alias: str) -> ImproperlyConfigured:
    """The error for a guard under a strategy that excludes nobody."""
    return ImproperlyConfigured(
        f"Lock {name!r} ({alias}): this strategy keeps nobody apart and so has no fence; with one, each holder would"
        " fence out the last. Choose another strategy for the name, or write without a guard."
    )


def _proof_of(held: Kept, using: str) -> Proof:
    """What ``held`` shows in database ``using``, whose fence it has raised to its token before.

    One database makes the tokens: two that number by themselves would disagree about which holder came later.
    """
    lease = held.lease
    if not held.backend.exclusive:
        raise no_fence(lease.name, lease.alias)
    if DEFAULT_DB_ALIAS not in held.tokens:
        held.tokens[DEFAULT_DB_ALIAS] = _raise(held)
    proof = Proof(name=lease.name, token=held.tokens[DEFAULT_DB_ALIAS], lease_id=lease.lease_id, ttl=lease.ttl)
    if using not in held.tokens:
        carry(proof, using=using, check=held.check)
        held.tokens[using] = proof.token
    return proof


def _raise(held: Kept) -> int:
    """Raise the fence for a holder, once. The trust window is looked at before and after."""
    lease = held.lease
    params = {name: getattr(lease, name) for name in ("name", "numbering", "grant_no", "lease_id")}
    for _ in range(2):
        rows = _execute(RAISE, params, using=DEFAULT_DB_ALIAS, ttl=lease.ttl, check=held.check)
        held.check()
        if rows:
            return int(rows[0][0])
        seed(lease.name)
    later = f"Lock {lease.name!r} ({lease.alias}): a later grant of this name has raised the fence."
    raise StaleToken(later, name=lease.name, alias=lease.alias)


def _execute(
    sql: str, params: dict[str, Any], *, using: str, ttl: float, check: Callable[[], None]
) -> connection.Rows:
    """Raise a fence, waiting for open guards of a former holder for as long as the own lease is good.

    Both statements are idempotent for their lease id, so one is sent again after a lost reply; after a pause, unless
    the server has waited itself.
    """
    give_up_at = boottime() + ttl
    pause = _FIRST_PAUSE
    while True:
        check()
        try:
            return connection.execute(sql, params, using=using)
        except psycopg.errors.UndefinedTable as missing:
            raise ImproperlyConfigured(
                f"Database {using!r} has no fence table: run `manage.py migrate aegis_locks --database {using}`, and"
                " let DATABASE_ROUTERS allow it."
            ) from missing
        except psycopg.OperationalError as trouble:
            if boottime() >= give_up_at:
                raise LockUnavailable(
                    f"Lock {params['name']!r}: its fence in database {using!r} could not be raised: "
                    f"{type(trouble).__name__}.",
                    name=params["name"],
                ) from trouble
            if not isinstance(trouble, psycopg.errors.LockNotAvailable):
                time.sleep(max(0.0, min(pause, give_up_at - boottime())))
                pause = min(_LAST_PAUSE, pause * 2)


def _refuse_inside_transaction(name: str, using: str) -> None:
    """Refuse any transaction around a guard but that of a ``TestCase``."""
    wrapper = connections[using]
    if any(not getattr(block, "_from_testcase", False) for block in wrapper.atomic_blocks):
        raise RuntimeError(
            f"Lock {name!r}: a guard is a transaction of its own and cannot be inside transaction.atomic() or another"
            f" guard on database {using!r}: its effects would be committed later, after the proof. Open it outside;"
            " in a view under ATOMIC_REQUESTS use transaction.non_atomic_requests."
        )
    if not wrapper.in_atomic_block and not wrapper.get_autocommit():
        raise RuntimeError(
            f"Lock {name!r}: autocommit is off on database {using!r}, so a guard could not commit. Turn it on."
        )


def _is_nested(using: str) -> bool:
    """Whether the open guard is inside a ``TestCase``, whose transaction goes on after it."""
    return len(connections[using].atomic_blocks) > 1


def _tell(proof: Proof, using: str) -> None:
    told = {"name": proof.name, "token": str(proof.token), "lease_id": str(proof.lease_id)}
    idle_ms = 0 if _is_nested(using) else min(_LONGEST_IDLE, max(1, int(proof.ttl * 900)))
    with connections[using].cursor() as cursor:
        cursor.execute(TELL, {**told, "idle_ms": str(idle_ms)})
        isolation = cursor.fetchone()[0]
    if isolation != "read committed":
        raise ImproperlyConfigured(
            f"Database {using!r} runs its transactions at {isolation.upper()}: a guard needs READ COMMITTED, in which"
            " each statement sees what others have committed. Set it in DATABASES[...]['OPTIONS']."
        )


def _untell(using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(TELL, {"idle_ms": "0", "name": "", "token": "", "lease_id": ""})


@contextmanager
def _stale_by_its_name(proof: Proof) -> Iterator[None]:
    """What a guarded table refuses as stale is raised as ``StaleToken``."""
    try:
        yield
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) == _STALE:
            raise _stale(proof.name, proof.token) from error
        raise


def _stale(name: str, token: int) -> StaleToken:
    return StaleToken(f"Lock {name!r}: fencing token {token} is stale, a later holder has started.", name=name)
