"""A PostgreSQL that keeps leases: does it take writes, does it keep what it grants, do its numbers go on growing?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from django.core.exceptions import ImproperlyConfigured

from .. import connection
from ..findings import Finding, Findings, could_not_look, fail, ok, warn

TOPIC = "postgres"
OLDEST = 14
"""The oldest major version that the Django versions of this package support."""
PATIENCE = 2.5  # seconds for one answer
TIMELINE = 40  # bits of a number that are below its timeline

# The tables, and the sequence of numbers, that the statements write to.
TABLES = tuple(f"aegis_locks_{name}" for name in ("lease", "claim", "advisory", "fence"))
SEQUENCE = "aegis_locks_token"

_SERVER = """
SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on', current_setting('synchronous_commit'),
       current_setting('fsync') = 'on', {timeout} WHERE name = 'idle_session_timeout'),
       {timeout} WHERE name = 'idle_in_transaction_session_timeout')
""".format(timeout="(SELECT setting::float8 / 1000 FROM pg_settings")
# In: tables, sequence. Out: those that are not there, those that this role may not write to.
_RIGHTS = """
SELECT coalesce(array_agg(t.name ORDER BY t.name) FILTER (WHERE t.id IS NULL), '{}'),
       coalesce(array_agg(t.name ORDER BY t.name) FILTER (WHERE NOT CASE WHEN t.name = %(sequence)s
           THEN has_sequence_privilege(t.id, 'USAGE')
           ELSE has_table_privilege(t.id, 'SELECT') AND has_table_privilege(t.id, 'INSERT')
                AND has_table_privilege(t.id, 'UPDATE') END), '{}')
FROM (SELECT name, to_regclass(name) AS id FROM unnest(%(tables)s::text[]) AS name) t
"""
# The next number that this server would give out, and the highest that is stored. Takes none.
_NUMBERS = """
SELECT ((('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint - 1) << 40)
       + s.last_value + s.is_called::int,
       greatest((SELECT max(token) FROM aegis_locks_lease), (SELECT max(version) FROM aegis_locks_claim),
                (SELECT max(token) FROM aegis_locks_fence), 0)
FROM aegis_locks_token s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresFacts:
    """What is known of one database, over the connection that leases use. Times are seconds."""

    using: str
    silence: str | None = None  # why there is no answer
    version: int = 0
    standby: bool = False
    read_only: bool = False
    synchronous_commit: str = "on"
    fsync: bool = True
    idle_session: float = 0.0  # 0: never ended
    idle_in_transaction: float = 0.0
    missing: tuple[str, ...] = ()  # tables
    denied: tuple[str, ...] = ()
    next_number: int | None = None
    highest_number: int | None = None


def ask(using: str) -> PostgresFacts:
    """Ask the database ``using``. Raises nothing of psycopg: no answer is a fact as well."""
    try:
        row = connection.execute(_SERVER, using=using, timeout=PATIENCE)[0]
        version, standby, read_only, synchronous, fsync, idle, idle_inside = row
        names = {"tables": [*TABLES, SEQUENCE], "sequence": SEQUENCE}
        missing, denied = connection.execute(_RIGHTS, names, using=using, timeout=PATIENCE)[0]
        next_number, highest = (None, None) if standby or missing or denied else _numbers(using)
    except (psycopg.Error, ImproperlyConfigured) as error:
        return PostgresFacts(using=using, silence=type(error).__name__)
    return PostgresFacts(
        using=using, version=version, standby=standby, read_only=read_only, synchronous_commit=synchronous,
        fsync=fsync, idle_session=idle, idle_in_transaction=idle_inside,
        missing=tuple(missing),
        denied=tuple(denied), next_number=next_number, highest_number=highest,
    )  # fmt: skip


def _numbers(using: str) -> tuple[int | None, int | None]:
    try:
        next_number, highest = connection.execute(_NUMBERS, using=using, timeout=PATIENCE)[0]
    except psycopg.errors.InsufficientPrivilege:  # USAGE is enough to draw a number, and not to look at the last
        return None, None
    return next_number, highest


def examine(using: str) -> Findings:
    """Ask the database ``using``, and judge it."""
    return list(judge(ask(using)))


def judge(facts: PostgresFacts) -> Iterator[Finding]:
    where = f"database {facts.using!r}"
    if facts.silence is not None:
        yield fail(
            TOPIC, f"{where}: no answer ({facts.silence}); every run that needs it is blocked",
            f"Start PostgreSQL, or correct DATABASES[{facts.using!r}].",
        )  # fmt: skip
        return
    yield _takes_writes(where, facts)
    yield _keeps(where, facts)
    if facts.missing:
        yield fail(TOPIC, f"{where}: {', '.join(facts.missing)} do not exist", "Run manage.py migrate.")
    elif facts.denied:
        yield fail(
            TOPIC, f"{where}: this role may not use {', '.join(facts.denied)}",
            "GRANT SELECT, INSERT, UPDATE on the tables and USAGE on the sequence.",
        )  # fmt: skip
    elif not facts.standby:
        yield _numbers_grow(where, facts)


def _takes_writes(where: str, facts: PostgresFacts) -> Finding:
    said = f"{where}: PostgreSQL {facts.version}"
    if facts.standby:
        return fail(TOPIC, f"{said} is a standby, which takes no writes", "Name the primary in HOST.")
    if facts.read_only:
        return fail(
            TOPIC, f"{said}: sessions are read-only (default_transaction_read_only)",
            "ALTER ROLE or the server's settings: default_transaction_read_only = off.",
        )  # fmt: skip
    if facts.version < OLDEST:
        return fail(TOPIC, f"{said} is too old", f"Use PostgreSQL {OLDEST} or later.")
    return ok(TOPIC, f"{said} is a primary that takes writes")


def _keeps(where: str, facts: PostgresFacts) -> Finding:
    """A grant that a crash can forget is given to a second holder, with the same number."""
    said = f"{where}: synchronous_commit of a lease's connection is {facts.synchronous_commit}"
    if not facts.fsync:
        return fail(TOPIC, f"{where}: fsync is off: a crash may forget grants and all other data", "Set fsync = on.")
    if facts.synchronous_commit == "off":
        return fail(
            TOPIC, f"{said}: a crash forgets grants, and their numbers are given out again",
            "Let 'options' reach the server (PgBouncer drops them), or ALTER ROLE ... SET synchronous_commit = on.",
        )  # fmt: skip
    if facts.synchronous_commit != "on":
        return warn(
            TOPIC, f"{said}: a failover may forget what the standby has not stored",
            "Let 'options' reach the server, or ALTER ROLE ... SET synchronous_commit = on.",
        )  # fmt: skip
    return ok(TOPIC, said)


def _numbers_grow(where: str, facts: PostgresFacts) -> Finding:
    following, highest = facts.next_number, facts.highest_number
    if following is None or highest is None:
        return could_not_look(
            TOPIC, f"{where}: this role may not read {SEQUENCE}", f"GRANT SELECT ON SEQUENCE {SEQUENCE}."
        )
    if following <= highest:
        lost = f"timeline {(highest >> TIMELINE) + 1}" if highest >> TIMELINE > following >> TIMELINE else "a copy"
        return warn(
            TOPIC, f"{where}: up to {highest} is stored, the next number is {following}: restored from {lost}?",
            f"SELECT setval('{SEQUENCE}', {highest}), so that new names begin above the old numbers.",
        )  # fmt: skip
    # Without figures: they differ from one strategy's look to the next, and what is the same is said once.
    return ok(TOPIC, f"{where}: the next number is above all that are stored")
