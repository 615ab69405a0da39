"""Acquire and release of every strategy, uncontended, beside the bare commands of its store and beside rivals.

    make bench-locks ARGS="--rounds 40 --calls 25"

The floor of a store is what the strategy must say to it at least, by the same driver, with nothing around it. A lock
that is a session's must also say in the same breath whose it is, because neither a locked row nor an advisory lock
bears a mark of its holder: without, `inspect` and `force_release` had nothing to go by. So the floors of `advisory`
and `row_lock` give the session a name; what they take without it is shown beside them. The number of a grant must
survive a crash, so the floor of `advisory` keeps it in a row; by a bare sequence, which is shown too, it might come
again. Rivals are measured where they are installed (requirements-bench.txt); none of them numbers its grants, has an
idempotent acquire or a trust window.
Exit status 1 if a strategy is slower than its bar.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import redis

from aegis_site.embedded import Services
from tests.benchmarks.timing import Case, measure, table

BARS = {"redlock": 0.6}  # of the floor of five nodes asked one after the other
BAR = 1.25

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
LEASE = """
UPDATE bench_lease SET holder = %s, expires_at = clock_timestamp() + interval '30 s', token = token + 1
WHERE name = 'n' AND expires_at <= clock_timestamp() RETURNING token
"""
LEASE_RELEASE = "UPDATE bench_lease SET holder = '', expires_at = 'epoch' WHERE name = 'n' AND holder = %s"
ADVISORY = """
WITH l AS MATERIALIZED (SELECT pg_try_advisory_lock(42) AS ok{named}),
     u AS (UPDATE bench_lease SET token = token + 1 FROM l WHERE l.ok AND name = 'counter' RETURNING token)
SELECT l.ok, u.token FROM l LEFT JOIN u ON true
"""
ROW_LOCK = "SELECT name{named} FROM bench_lease WHERE name = 'n' FOR UPDATE NOWAIT"
SEQUENCE = "SELECT set_config('application_name', %s, false), pg_try_advisory_lock(42), nextval('bench_numbers')"
NAMED = ", set_config('application_name', %s, false)"


def ours(store: str, alias: str) -> Case:
    from locks import lock_backends

    backend, name = lock_backends[alias], f"bench.{alias}"

    def once() -> None:
        lease = backend.acquire(name)
        assert lease is not None
        assert backend.release(lease) or not backend.exclusive

    return Case(store, f"aegis {alias}", once, ours=True)


def postgres_cases(url: str) -> Iterator[Case]:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(
        "CREATE TABLE bench_lease (name text PRIMARY KEY, holder text, expires_at timestamptz, token bigint)"
    )
    connection.execute("CREATE SEQUENCE bench_numbers")
    connection.execute("INSERT INTO bench_lease VALUES ('n', '', 'epoch', 0), ('counter', '', 'epoch', 0)")

    def lease() -> None:
        holder = uuid.uuid4().hex
        assert connection.execute(LEASE, (holder,)).fetchone()
        connection.execute(LEASE_RELEASE, (holder,))

    yield Case("rows", "floor: UPDATE of a lease, UPDATE to release", lease, floor=True)
    yield from session_cases(connection, psycopg.connect(url))


def session_cases(connection: psycopg.Connection, rows: psycopg.Connection) -> Iterator[Case]:
    named_advisory, bare_advisory = ADVISORY.format(named=NAMED), ADVISORY.format(named="")
    named_row, bare_row = ROW_LOCK.format(named=NAMED), ROW_LOCK.format(named="")

    def advisory() -> None:
        assert connection.execute(named_advisory, (str(uuid.uuid4()),)).fetchone()[0]  # type: ignore[index]
        connection.execute("SELECT pg_advisory_unlock(42)")

    def nameless_advisory() -> None:
        assert connection.execute(bare_advisory).fetchone()[0]  # type: ignore[index]
        connection.execute("SELECT pg_advisory_unlock(42)")

    def forgetful_advisory() -> None:
        assert connection.execute(SEQUENCE, (str(uuid.uuid4()),)).fetchone()[1]  # type: ignore[index]
        connection.execute("SELECT pg_advisory_unlock(42)")

    def row_lock() -> None:
        assert rows.execute(named_row, (str(uuid.uuid4()),)).fetchone()
        rows.rollback()

    def nameless_row_lock() -> None:
        assert rows.execute(bare_row).fetchone()
        rows.rollback()

    yield Case("advisory", "floor: advisory lock with counter and name, unlock", advisory, floor=True)
    yield Case("advisory", "the same without a name: nobody knows whose it is", nameless_advisory)
    yield Case("advisory", "the same by a sequence: a crash may give a number again", forgetful_advisory)
    yield Case("row_lock", "floor: BEGIN, SELECT FOR UPDATE NOWAIT, name, ROLLBACK", row_lock, floor=True)
    yield Case("row_lock", "the same without a name: nobody knows whose it is", nameless_row_lock)


def redis_cases(url: str, quorum: list[str]) -> Iterator[Case]:
    client, nodes = redis.Redis.from_url(url), [redis.Redis.from_url(node) for node in quorum]
    release = client.register_script(RELEASE)
    releases = [node.register_script(RELEASE) for node in nodes]

    def one() -> None:
        value = uuid.uuid4().hex
        assert client.set("bench", value, nx=True, px=30000)
        release(keys=["bench"], args=[value])

    def five() -> None:
        value = uuid.uuid4().hex
        for node in nodes:
            assert node.set("bench", value, nx=True, px=30000)
        for script in releases:
            script(keys=["bench"], args=[value])

    def redis_py() -> None:
        lock = client.lock("bench-redis-py", timeout=30)
        assert lock.acquire(blocking=False)
        lock.release()

    yield Case("redis", "floor: SET NX PX, release in Lua", one, floor=True)
    yield Case("redis", "redis-py Lock", redis_py)
    yield Case("quorum", "floor: five SET NX PX, five releases, one after the other", five, floor=True)
    yield from redis_rivals(client, nodes)


def redis_rivals(client: Any, nodes: list[Any]) -> Iterator[Case]:
    if find_spec("redis_lock"):
        import redis_lock

        def renewing() -> None:
            lock = redis_lock.Lock(client, "bench-prl", expire=30, auto_renewal=True)
            assert lock.acquire(blocking=False)
            lock.release()

        yield Case("redis", "python-redis-lock, with renewal", renewing)
    if find_spec("pottery"):
        from pottery import Redlock

        def pottery() -> None:
            lock = Redlock(key="bench-pottery", masters=set(nodes), auto_release_time=30)
            assert lock.acquire(blocking=False)
            lock.release()

        yield Case("quorum", "pottery Redlock", pottery)


def django_rivals() -> Iterator[Case]:
    if find_spec("pglock"):
        import pglock

        def advisory() -> None:
            with pglock.advisory("bench", timeout=0) as got:
                assert got

        yield Case("advisory", "django-pglock advisory (no counter)", advisory)


def cases(services: Services) -> list[Case]:
    from locks import lock_backends

    stores = {"database": "rows", "optimistic": "rows", "redis": "redis", "redlock": "quorum"}
    mine = [ours(stores.get(alias, alias), alias) for alias in lock_backends.aliases() if alias != "none"]
    found = [
        *postgres_cases(services.postgres.url),
        *redis_cases(services.redis["locks"].url, [node.url for node in services.quorum]),
        *django_rivals(),
    ]
    wanted = {case.store for case in mine}
    return [case for case in (*found, *mine) if case.store in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=25, help="of each case in one round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Services(Path(folder)) as services:
        os.environ.update(
            services.env(), DJANGO_SETTINGS_MODULE="aegis_site.settings", SECRET_KEY="bench", LOG_LEVEL="WARNING"
        )
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0, interactive=False)
        _wait_for_the_quorum()
        measured = cases(services)
        measure(measured, rounds=options.rounds, calls=options.calls)
        return tell(measured)


def _wait_for_the_quorum() -> None:
    import time

    from locks import lock_backends

    while (left := max(lock_backends[alias].prepare() for alias in lock_backends.aliases())) > 0:
        time.sleep(left)


def tell(measured: list[Case]) -> int:
    order = sorted(measured, key=lambda case: (case.store, not case.floor, not case.ours, case.name))
    sys.stdout.write("\n".join(table(order)) + "\n")
    floors = {case.store: case for case in measured if case.floor}
    slow = [
        case.name
        for case in measured
        if case.ours and case.ratio_to(floors[case.store]) > BARS.get(case.name.removeprefix("aegis "), BAR)
    ]
    sys.stdout.write(f"Slower than the bar: {', '.join(slow) or 'none'}\n")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
