"""A RabbitMQ of a test session's own: on free loopback ports, with a password, gone with the session."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

import amqp

from aegis_site.embedded import ChildProcess, spawn
from aegis_site.embedded.ports import free_port, is_free
from aegis_site.embedded.server import Place, Server, clean_environment
from tests.support.waiting import wait_until

# Debian's wrapper on PATH changes the user; the program behind it does not.
NAMES = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
REMEDY = "no RabbitMQ: install rabbitmq-server, or name the program in AEGIS_RABBITMQ"
USER = "aegis"


def rabbitmq() -> Path | None:
    """The program that starts a server, or None where there is none."""
    named = os.environ.get("AEGIS_RABBITMQ")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    return Path(found) if found else None


class RabbitServer(Server):
    """One node, and beside it its name server (epmd), which Erlang would leave behind as a daemon."""

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__("rabbitmq", Place(data=folder, sockets=folder, logs=folder, identity=None))
        self.port, self._names_port, self._node_port = free_port(), free_port(), free_port()
        self.password = secrets.token_hex(16)
        self._program = program
        self._names: ChildProcess | None = None

    @property
    def url(self) -> str:
        return f"amqp://{USER}:{self.password}@127.0.0.1:{self.port}//"

    def launch(self) -> None:
        if self._names is None:
            self._write_configuration()
            self._names = self._name_server()
        super().launch()

    def end(self) -> None:
        """Stop both processes. The server is not started again."""
        if self.process is not None:
            self.process.stop()
        if self._names is not None:
            self._names.stop()

    def connect(self) -> amqp.Connection:
        """A connection that is open. Raises what the driver raises."""
        connection = amqp.Connection(
            f"127.0.0.1:{self.port}", USER, self.password, connect_timeout=2, read_timeout=5, write_timeout=5
        )
        connection.connect()
        return connection

    def ask(self, *arguments: str) -> str:
        """What `rabbitmqctl` answers, without headings. It takes a second."""
        command = [self._program.with_name("rabbitmqctl"), "--quiet", "-n", self._node, *arguments]
        run = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=30, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    @property
    def _node(self) -> str:
        return f"aegis-{self.port}@localhost"

    def _name_server(self) -> ChildProcess:
        command = ["epmd", "-address", "127.0.0.1", "-port", str(self._names_port)]
        process = spawn("epmd", command, log=self.place.logs / "epmd.log", env=self._environment())
        wait_until(lambda: not process.running or not is_free(self._names_port), message="epmd listens")
        return process

    def _write_configuration(self) -> None:
        """The password stands in a file: on the command line every user of the machine could read it."""
        lines = (
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"default_user = {USER}",
            f"default_pass = {self.password}",
            "disk_free_limit.absolute = 1MB",
            "log.console = true",
            "log.console.level = info",
            "log.file = false",
        )
        path = self.place.data / "rabbitmq.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")
        (self.place.data / "plugins").write_text("[].\n")

    def _environment(self) -> dict[str, str]:
        data = self.place.data
        return {
            **clean_environment(),
            "HOME": str(data),  # where Erlang keeps its cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names_port),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(data / "no-rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "logs"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                "+S 2:2 -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script is replaced by the server, instead of staying before it
        }  # fmt: skip

    def _command(self) -> list[str | Path]:
        return [self._program]

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except (OSError, amqp.AMQPError):
            return False
        return True
