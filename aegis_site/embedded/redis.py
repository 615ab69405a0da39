"""An embedded Redis (or Valkey) on a loopback port, with a password of its own."""

from __future__ import annotations

import secrets
from pathlib import Path

import redis

from aegis_site.embedded.errors import EmbeddedError
from aegis_site.embedded.identity import give, make_folder
from aegis_site.embedded.ports import free_port
from aegis_site.embedded.server import READY_WITHIN, Place, Server

TAKEN = "Address already in use"
PORT_TRIES = 5


class RedisServer(Server):
    """One Redis that never evicts a key; `keeps`: whether its keys outlive a stop, by an append-only file.

    A node of a quorum and a store of locks keep nothing: the harder case, and the one that a strategy must
    stand.
    """

    def __init__(self, name: str, place: Place, program: Path, *, keeps: bool = False) -> None:
        super().__init__(f"redis-{name}", place)
        self.keeps = keeps
        self.port = free_port()
        self._program = program
        self._password = secrets.token_hex(16)
        self._folder = place.data / self.name
        self._started_once = False

    @property
    def url(self) -> str:
        """The address of database 0."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """The address of a numbered database."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/{database}"

    def client(self) -> redis.Redis:
        """A client of this server for a test or a probe: short time-outs, no retries. Close it after use."""
        return redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2, retry=None)

    def launch(self) -> None:
        if not self.running:
            self._write_configuration()
        super().launch()

    def await_ready(self, within: float = READY_WITHIN) -> None:
        """As for each server; a first start goes to another port when the chosen one was taken meanwhile."""
        for _ in range(PORT_TRIES):
            try:
                super().await_ready(within)
            except EmbeddedError:
                if self._started_once or not self._port_was_taken():
                    raise
                self.port = free_port()
                self.launch()
            else:
                self._started_once = True
                return
        raise self._failure("found no port to listen on")

    def _command(self) -> list[str | Path]:
        return [self._program, self._folder / "redis.conf"]

    def _answers(self) -> bool:
        client = self.client()
        try:
            return bool(client.ping())
        except redis.RedisError:  # nobody there, still loading, or somebody else with another password
            return False
        finally:
            client.close()

    def _write_configuration(self) -> None:
        """Settings go into a file: on the command line every user of the machine could read the password."""
        make_folder(self._folder, self.place.identity)
        lines = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self._password}",
            f"dir {self._folder}",
            'save ""',
            f"appendonly {'yes' if self.keeps else 'no'}",
            "maxmemory-policy noeviction",
            "daemonize no",
        )
        path = self._folder / "redis.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")
        give(path, self.place.identity)

    def _port_was_taken(self) -> bool:
        return any(TAKEN in line for line in self.said())

    def _remedy(self, cause: str) -> str:
        if self._port_was_taken():
            return f"Another program listens on port {self.port} of 127.0.0.1: end it, or start again."
        return super()._remedy(cause)
