"""A Redis that answers, but not with what it was asked for: each answer is made by a real server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from aegis_site.embedded.ports import free_port
from aegis_site.embedded.redis import RedisServer
from tests.support.waiting import wait_until

Sickness = Callable[["SickRedis"], AbstractContextManager[None]]

# What a start reads back, one key after the other. The server answers once for each kilobyte of its file.
KEYS = 3_000
KEY_DELAY = 3_000  # microseconds


class SickRedis(RedisServer):
    """A server for one test whose answers can be spoilt; ``loading`` makes its next start take some seconds."""

    def __init__(self, healthy: RedisServer) -> None:
        super().__init__("sick", healthy.place, healthy._program)
        self.slow_start = False

    def _write_configuration(self) -> None:
        super()._write_configuration()
        lines = ["enable-protected-configs yes", "loading-process-events-interval-bytes 1024"]
        lines += [f"key-load-delay {KEY_DELAY}"] if self.slow_start else []
        with (self._folder / "redis.conf").open("a") as file:
            file.write("\n".join(lines) + "\n")

    def configure(self, **settings: Any) -> None:
        with self.client() as client:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), value)

    def refuses(self, pattern: str) -> bool:
        """Whether a script that writes is answered with an error that reads like this."""
        try:
            with self.client() as client:
                client.eval("return redis.call('SET', KEYS[1], '1', 'PX', 1)", 1, "probe")
        except RedisError as error:
            return re.search(pattern, f"{type(error).__name__} {error}") is not None
        return False


@contextmanager
def read_only(server: SickRedis) -> Iterator[None]:
    """A primary that has become the replica of somebody: READONLY."""
    with server.client() as client:
        client.replicaof("127.0.0.1", str(free_port()))
        yield
        client.replicaof("NO", "ONE")


@contextmanager
def out_of_memory(server: SickRedis) -> Iterator[None]:
    """Full, and told to evict nothing: OOM."""
    server.configure(maxmemory="1")
    yield
    server.configure(maxmemory="0")


@contextmanager
def not_permitted(server: SickRedis) -> Iterator[None]:
    """The user lost the right to run scripts and to write: NOPERM."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-@scripting", "-@write")
        yield
        client.execute_command("ACL", "SETUSER", "default", "+@all")


@contextmanager
def cannot_save(server: SickRedis) -> Iterator[None]:
    """Its snapshots fail, so it takes no more writes: MISCONF."""
    gone = server._folder / "gone"
    gone.mkdir()
    gone.chmod(0o777)
    server.configure(dir=str(gone), save="3600 1")
    gone.rmdir()
    with server.client() as client:
        client.bgsave()
        wait_until(
            lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err",  # type: ignore[union-attr, index]
            message="the snapshot failed",
        )
    yield
    server.configure(dir=str(server._folder), save="")


@contextmanager
def loading(server: SickRedis) -> Iterator[None]:
    """Started again, and busy with reading its file: LOADING. It gets well by itself."""
    with server.client() as client:
        with client.pipeline(transaction=False) as pipeline:
            for number in range(KEYS):
                pipeline.set(f"ballast:{number}", "x" * 200, ex=3600)
            pipeline.execute()
        client.save()
    server.slow_start = True
    server.stop()
    server.launch()
    yield
    server.await_ready()
    server.slow_start = False


@dataclass(frozen=True)
class Kind:
    """How a server is made sick, and how its answer reads: by itself, or as the client's class of error."""

    fall_sick: Sickness
    says: str


SICKNESSES = {
    "READONLY": Kind(read_only, "READONLY|ReadOnlyError"),
    "OOM": Kind(out_of_memory, "OOM|OutOfMemoryError"),
    "NOPERM": Kind(not_permitted, "NOPERM|NoPermissionError"),
    "MISCONF": Kind(cannot_save, "MISCONF"),
    "LOADING": Kind(loading, "LOADING|BusyLoadingError"),
}
