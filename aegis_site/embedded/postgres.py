"""An embedded PostgreSQL, reached by a Unix socket in a folder that only its user may enter."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import psutil
import psycopg

from aegis_site.embedded.identity import make_folder
from aegis_site.embedded.server import Place, Server

USER = DATABASE = "aegis"
ENDED_WITHIN = 10  # seconds


class PostgresServer(Server):
    """PostgreSQL with the durability of a real one: fsync and synchronous_commit stay on.

    It listens on no port, so none can be taken. Whoever may enter the socket's folder (mode 0700) is let in
    without a password: the user it runs as, and root.
    """

    stop_signal = signal.SIGINT  # "fast": ends the sessions, then stops

    def __init__(self, place: Place, programs: Path) -> None:
        super().__init__("postgres", place)
        self.data = place.data / "postgres"
        self.sockets = place.sockets / "pg"
        self._programs = programs

    @property
    def url(self) -> str:
        """The address of the database `aegis`, as libpq and the settings read it."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The address of another database of this server."""
        return f"postgres://{USER}@/{database}?host={self.sockets}"

    def create(self, within: float = 60) -> None:
        """Make the cluster's files. Raises EmbeddedError with the cause in PostgreSQL's own words."""
        make_folder(self.data, self.place.identity)
        make_folder(self.sockets, self.place.identity)
        options = ["-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        initdb = self._spawn([self._programs / "initdb", "-D", self.data, *options])
        try:
            status = initdb.wait(within)
        except subprocess.TimeoutExpired as error:
            initdb.kill()
            raise self._failure(f"could not be set up within {within:.0f} seconds") from error
        if status != 0:
            raise self._failure("could not be set up")

    def create_database(self) -> None:
        """Make the database `aegis` in the running server."""
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")

    def kill(self) -> None:
        """Crash the server, sessions and all.

        Left alone those end a moment later, and a start in between finds the shared memory of the old server in use.
        """
        sessions = psutil.Process(self.process.pid).children(recursive=True) if self.process and self.running else []
        super().kill()
        for session in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                session.kill()
        psutil.wait_procs(sessions, timeout=ENDED_WITHIN)

    def _command(self) -> list[str | Path]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "300",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self.data, *arguments]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _cause(self, said: list[str]) -> str:
        """The last error: after one, PostgreSQL's programs go on to tell what they cleaned up."""
        errors = [line for line in said if "FATAL" in line or "PANIC" in line or "error:" in line]
        return super()._cause(errors or said)
