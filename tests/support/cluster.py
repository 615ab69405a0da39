"""A PostgreSQL primary of a test's own, its standby, and the promotion of that."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from django.core.management import call_command
from django.db import connections

from aegis_site.embedded.binaries import postgres_folder, runnable_postgres
from aegis_site.embedded.identity import make_folder, server_identity
from aegis_site.embedded.postgres import DATABASE, USER, PostgresServer
from aegis_site.embedded.server import Place
from locks import connection
from tests.support.waiting import wait_until

ALIAS = "cluster"
"""The database alias of whichever server is the primary."""


@dataclass
class Cluster:
    """``primary`` serves the alias. ``failover`` loses it, with all that its standby had not received."""

    root: Path
    programs: Path
    place: Place
    primary: PostgresServer
    standby: PostgresServer | None = None

    def add_standby(self) -> None:
        """A standby that has received all until now, and is stopped: it hears of nothing that comes later."""
        place = Place(
            data=make_folder(self.root / "standby", None, mode=0o711),
            sockets=make_folder(self.root / "s", self.place.identity),
            logs=self.place.logs,
            identity=self.place.identity,
        )
        standby = PostgresServer(place, self.programs)
        standby.name = "standby"
        standby.log = place.logs / "standby.log"
        make_folder(standby.sockets, place.identity)
        command = [self.programs / "pg_basebackup", "-D", standby.data, "-h", self.primary.sockets, "-U", USER]
        subprocess.run([*map(str, command), "-R", "-X", "stream", "-c", "fast"], check=True, capture_output=True)
        if place.identity is not None:
            for path in [standby.data, *standby.data.rglob("*")]:
                shutil.chown(path, place.identity.uid, place.identity.gid)
        standby.start()
        wait_until(self._streams, timeout=30, message="the standby streams")
        standby.stop()
        self.standby = standby

    def failover(self) -> None:
        """Crash the primary; its standby goes on in its place."""
        assert self.standby is not None
        self.primary.kill()
        self.standby.start()
        with psycopg.connect(self.standby.url, autocommit=True) as session:
            session.execute("SELECT pg_promote()")
        self.primary = self.standby
        self.connect()

    def connect(self) -> None:
        """Let the alias lead to the primary."""
        connection.close_all(using=ALIAS)
        if ALIAS in connections.settings:
            connections[ALIAS].close()
            del connections[ALIAS]
        entry = connections["default"].settings_dict
        connections.settings[ALIAS] = {
            **entry, "NAME": DATABASE, "USER": USER, "HOST": str(self.primary.sockets), "PORT": "", "PASSWORD": "",
        }  # fmt: skip

    def _streams(self) -> bool:
        with psycopg.connect(self.primary.url) as session:
            row = session.execute(
                "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"
            ).fetchone()
        return row is not None and row[0] == 1


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A primary with the tables of ``aegis_locks``; database access must be allowed by the caller."""
    identity = server_identity()
    root = Path(tempfile.mkdtemp(prefix="aegis-c-", dir="/tmp"))
    root.chmod(0o711 if identity else 0o700)
    programs = runnable_postgres(postgres_folder(), identity, root)
    place = Place(
        data=make_folder(root / "primary", None, mode=0o711),
        sockets=make_folder(root / "p", identity),
        logs=make_folder(root / "logs", None, mode=0o755),
        identity=identity,
    )
    made = Cluster(root, programs, place, PostgresServer(place, programs))
    try:
        made.primary.create()
        made.primary.start()
        made.primary.create_database()
        made.connect()
        call_command("migrate", "aegis_locks", database=ALIAS, verbosity=0)
        yield made
    finally:
        connection.close_all(using=ALIAS)
        if ALIAS in connections.settings:
            connections[ALIAS].close()
            del connections.settings[ALIAS]
            del connections[ALIAS]
        for server in (made.primary, made.standby):
            if server is not None:
                server.kill()
        shutil.rmtree(root, ignore_errors=True)
