"""Fork Celery's processes from one that has imported what they all import. Run by its path, for ``forked``.

A worker or beat spends most of its start on imports: most of a second of a core, hundreds of times in a run of all
tests. The process made here imports Celery, Django and the clients once, nothing of the project and no settings, and
forks itself for each start: a process of its own with its own settings, session and log, like any other.

    python forkserver.py SOCKET

One connection for each start: it brings the request and takes the process id and later the exit status.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

IMPORTED = (
    "celery.bin.celery", "celery.bin.worker", "celery.bin.beat", "celery.apps.worker", "celery.apps.beat",
    "celery.worker.consumer", "celery.concurrency.prefork", "celery.fixups.django", "kombu.transport.redis",
    "django.contrib.admin.sites", "django.contrib.admin.options", "django.contrib.admin.views.main",
    "django.contrib.postgres.fields", "django.core.management", "django.db.backends.postgresql.base", "django.test",
    "django.views.i18n", "environ", "psutil", "cronsim", "yaml", "psycopg", "redis.asyncio",
)  # fmt: skip
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Server:
    """Hears, forks, and tells how its children end. One thread, for it forks."""

    def __init__(self, address: str) -> None:
        self.children: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.woken, waker = socket.socketpair()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen()
        self.waker = waker
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any]:
        """Returns in a child only: what it is to be."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.woken:
                    self.woken.recv(1000)
                    self.reap()
                elif request := self.fork():
                    return request

    def reap(self) -> None:
        """Tell of those that have ended."""
        for pid, connection in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.children[pid]
                with connection, contextlib.suppress(BrokenPipeError):  # nobody asks any more
                    connection.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def fork(self) -> dict[str, Any] | None:
        """The request in the child, None in the server."""
        connection, _ = self.listener.accept()
        with connection.makefile("r") as lines:
            request: dict[str, Any] = json.loads(lines.readline())
        server = os.getpid()
        pid = os.fork()
        if pid:
            self.children[pid] = connection
            return None
        self.leave()
        die_with(server)
        os.setsid()
        with connection:
            connection.send(f"{os.getpid()}\n".encode())
        return request

    def leave(self) -> None:
        """What a child has of its server goes."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for opened in (self.listener, self.woken, self.waker, *self.children.values()):
            opened.close()


def die_with(parent: int) -> None:
    """As ``aegis_site.embedded.launch`` does for a process that is started the usual way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def become(request: dict[str, Any]) -> None:
    """Take on the output, the environment and the arguments that were asked for."""
    output = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(output)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = list(request["command"])


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())
    for module in IMPORTED:
        importlib.import_module(module)
    request = Server(sys.argv[1]).serve()
    become(request)
    runpy.run_module(request["command"][0], run_name="__main__", alter_sys=True)
