"""How long a name stays closed after its holder was killed, for somebody who keeps asking.

    make bench-takeover ARGS="--kills 30"

Each holder is a process of its own that holds one name under every strategy and renews it. It is killed with
SIGKILL at an odd moment; the clock runs until the name is granted to this process. Exit status 1 if a strategy's p99
is beyond its bound: the TTL and four seconds for leases, one second for locks that live and die with a session.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from aegis_site.embedded import Services
from locks.clock import boottime

BOUNDS = {"advisory": 1.0, "row_lock": 1.0}  # seconds; the others: their TTL, and
EXTRA = 4.0  # seconds until somebody asks again
ASK_EVERY = 0.02  # seconds
GIVE_UP = 60.0  # seconds


def hold(name: str, aliases: list[str], ready: int) -> NoReturn:
    """Hold ``name`` under every strategy until the end of this process."""
    from locks import lock_backends
    from locks.keepalive import keep_alive

    with ExitStack() as stack:
        for alias in aliases:
            backend = lock_backends[alias]
            lease = backend.acquire(name)
            assert lease is not None, alias
            stack.enter_context(keep_alive(backend, lease))
        os.write(ready, b".")
        while True:
            signal.pause()


def start_holders(count: int, aliases: list[str]) -> list[int]:
    """Fork them all and return when each holds its name."""
    reading, writing = os.pipe()
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                hold(f"takeover.{number}", aliases, writing)
            finally:
                os._exit(1)
        pids.append(pid)
    held = b""
    while len(held) < count:
        held += os.read(reading, count)
    return pids


def waits(pids: list[int], aliases: list[str]) -> dict[str, list[float]]:
    """Kill the holders one after the other; seconds until each name was free, by strategy."""
    from locks import lock_backends

    found: dict[str, list[float]] = defaultdict(list)
    closed: dict[tuple[str, str], float] = {}
    due = [(boottime() + 2 + number * random.uniform(0.2, 0.5), number) for number in range(len(pids))]
    give_up = boottime() + GIVE_UP + len(pids)
    while (due or closed) and boottime() < give_up:
        while due and due[0][0] <= boottime():
            _, number = due.pop(0)
            os.kill(pids[number], signal.SIGKILL)
            closed |= dict.fromkeys(((alias, f"takeover.{number}") for alias in aliases), boottime())
            os.waitpid(pids[number], 0)
        for (alias, name), since in list(closed.items()):
            if (lease := lock_backends[alias].acquire(name)) is not None:
                found[alias].append(boottime() - since)
                lock_backends[alias].release(lease)
                del closed[alias, name]
        time.sleep(ASK_EVERY)
    assert not closed, f"never freed: {sorted(closed)}"
    return found


def tell(found: dict[str, list[float]]) -> int:
    """Print a line a strategy; 1 where one is beyond its bound."""
    from locks import lock_backends

    late = 0
    for alias, seconds in sorted(found.items()):
        seconds.sort()
        bound = BOUNDS.get(alias) or lock_backends[alias].ttl + EXTRA
        p99 = seconds[math.ceil(0.99 * len(seconds)) - 1]
        late += p99 > bound
        sys.stdout.write(
            f"{alias:11} {len(seconds)} kills  median {seconds[len(seconds) // 2]:.2f} s  p99 {p99:.2f} s"
            f"  longest {seconds[-1]:.2f} s  bound {bound:.1f} s\n"
        )
    return 1 if late else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--kills", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Services(Path(folder)) as services:
        os.environ.update(services.env(), DJANGO_SETTINGS_MODULE="aegis_site.settings", SECRET_KEY="bench")
        os.environ["LOG_LEVEL"] = "WARNING"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0, interactive=False)
        from locks import lock_backends

        aliases = [alias for alias in lock_backends.aliases() if lock_backends[alias].exclusive]
        while (left := max(lock_backends[alias].prepare() for alias in aliases)) > 0:
            time.sleep(left)
        return tell(waits(start_holders(options.kills, aliases), aliases))


if __name__ == "__main__":
    sys.exit(main())
