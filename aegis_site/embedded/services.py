"""One instance of all services: PostgreSQL, a broker, a Redis for locks, and five nodes of a quorum."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO

from aegis_site.embedded import state
from aegis_site.embedded.binaries import postgres_folder, redis_program, runnable_postgres, runnable_redis
from aegis_site.embedded.errors import EmbeddedError, FolderInUse
from aegis_site.embedded.identity import Identity, make_folder, reachable, server_identity
from aegis_site.embedded.leftovers import PREFIX, clean_up, remove_files
from aegis_site.embedded.marks import ProcessMark
from aegis_site.embedded.postgres import PostgresServer
from aegis_site.embedded.redis import RedisServer
from aegis_site.embedded.server import Place, Server
from aegis_site.stores import REQUIRED

QUORUM_NODES = 5


def say(sentence: str) -> None:
    """Tell the user something beside a command's output."""
    sys.stderr.write(f"{sentence}\n")


class Services:
    """Real servers in `folder`, from `start()` to `stop()` or as a context manager, in the main thread.

    `services.postgres`, `services.redis["broker"]`, `services.redis["locks"]` and `services.quorum[0..4]`
    can be stopped, started, killed and paused one by one. Several instances live side by side in different
    folders; one folder holds one. Data is new at each start and gone after the end; `folder`/logs stays
    until the next start.
    """

    def __init__(self, folder: Path, notify: Callable[[str], None] = say) -> None:
        self.folder = folder
        self.notify = notify
        self._guard: IO[str] | None = None
        self._temporary: Path | None = None
        self.postgres: PostgresServer
        self.redis: dict[str, RedisServer] = {}
        self.quorum: list[RedisServer] = []

    def __enter__(self) -> Services:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def servers(self) -> list[Server]:
        """Every server, PostgreSQL first."""
        return [self.postgres, *self.redis.values(), *self.quorum] if self.redis else []

    def start(self) -> None:
        """Start everything; returns when all answer. After an EmbeddedError nothing is left running."""
        self._guard = _take(self.folder)
        try:
            clean_up(self.folder, self.notify)
            self._build()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop what runs and remove all but the logs. Can be called again, also after a failed start."""
        for server in self.servers:
            if server.process is not None:
                server.process.ask_to_stop()
        for server in self.servers:
            server.stop()
        remove_files(self.folder, self._temporary)
        if self._guard is not None:
            state.remove(self.folder)
            self._guard.close()
            self._guard = None

    def restore(self) -> None:
        """Wake what is paused and start what is stopped, after somebody disturbed a server."""
        for server in self.servers:
            server.resume()
            server.start()

    def env(self) -> dict[str, str]:
        """The environment variables that lead the settings, here and in a child, to these services."""
        return {
            "DATABASE_URL": self.postgres.url,
            "CELERY_BROKER_URL": self.redis["broker"].url_of(0),
            "CACHE_URL": self.redis["broker"].url_of(1),
            "REDIS_URL": self.redis["locks"].url,
            "REDLOCK_URLS": ",".join(node.url for node in self.quorum),
            "AEGIS_EMBEDDED": "1",
            "PLAIN_HTTP": os.environ.get("PLAIN_HTTP", "true"),
        }

    def _build(self) -> None:
        identity = server_identity()
        programs, redis_binary = postgres_folder(), redis_program()
        self._temporary = _temporary_folder(identity)
        self._write_state()
        place = self._place(identity)
        self.postgres = PostgresServer(place, runnable_postgres(programs, identity, self._temporary))
        binary = runnable_redis(redis_binary, identity, self._temporary)
        self.redis = {
            "broker": RedisServer("broker", place, binary, keeps=True),
            "locks": RedisServer("locks", place, binary),
        }
        self.quorum = [RedisServer(f"quorum-{number}", place, binary) for number in range(1, QUORUM_NODES + 1)]

    def _place(self, identity: Identity | None) -> Place:
        """Lay out the folders; data goes beside the sockets where the lent user cannot reach the project."""
        assert self._temporary is not None
        logs = self.folder / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        home = self.folder if reachable(self.folder / "data", identity) else self._temporary
        return Place(
            data=make_folder(home / "data", None, mode=0o711),
            sockets=self._temporary,
            logs=make_folder(logs, None, mode=0o755),
            identity=identity,
        )

    def _launch(self) -> None:
        for node in (*self.redis.values(), *self.quorum):
            node.launch()
        self.postgres.create()
        self.postgres.launch()
        for server in self.servers:
            server.await_ready()
        self.postgres.create_database()
        self._write_state(self.env())

    def _write_state(self, environment: dict[str, str] | None = None) -> None:
        """Write down what a later start must clean up if this process is killed."""
        state.State(
            starter=ProcessMark.of(os.getpid()),
            processes=tuple(server.process.mark for server in self.servers if server.process),
            temporary=str(self._temporary or ""),
            environment=environment or {},
        ).write(self.folder)


def wants_services(arguments: Sequence[str]) -> bool:
    """Whether a management command brings its own services: `aegis demo` and `aegis soak` do, their help does not."""
    brings = list(arguments[:1]) == ["aegis"] and arguments[1:2] in (["demo"], ["soak"])
    return brings and not {"-h", "--help"}.intersection(arguments)


@contextmanager
def ensure_services(project: Path) -> Iterator[Services | None]:
    """Run a block with stores: the environment's own (yields None), else embedded ones of the project.

    The addresses are in os.environ before the block runs: load the settings in it, not before. A terminate
    or a hang-up signal ends the block as SystemExit, so that the services are stopped and their data
    removed.
    """
    if any(os.environ.get(name) for name in REQUIRED):
        yield None
        return
    global _own
    with _signals_as_exit(), Services(state.embedded_folder(project)) as services:
        os.environ.update(services.env())
        _own = services
        yield services


_own: Services | None = None


def own_services() -> Services | None:
    """The services that `ensure_services()` started in this process, None where it uses the environment's own."""
    return _own


@contextmanager
def _signals_as_exit() -> Iterator[None]:
    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take(folder: Path) -> IO[str]:
    """Make the folder and hold its lock file until this process ends; the kernel lets go of it then.

    Raises EmbeddedError when the folder cannot be made or another process holds it.
    """
    try:
        make_folder(folder, None, mode=0o755)
        guard = (folder / "lock").open("a+")
    except OSError as error:
        raise EmbeddedError(
            f"{folder} cannot be used: {error.strerror}. Run the command as the owner of the folder."
        ) from error
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        guard.close()
        found = state.read(folder)
        who = f"Process {found.starter.pid}" if found else "Another process"
        raise FolderInUse(f"{who} already runs the services in {folder}: stop it first.") from None
    return guard


def _temporary_folder(identity: Identity | None) -> Path:
    """Make a folder with a short name that the lent user may pass through, for sockets and copies."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes an unguessable name in it
        if len(parent) < 60 and reachable(Path(parent) / "x", identity):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            folder.chmod(0o711 if identity else 0o700)
            return folder
    raise EmbeddedError(
        "No folder for temporary files that an unprivileged user may enter: set TMPDIR to one, such as /tmp."
    )
