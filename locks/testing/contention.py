"""Contention for one name: by threads of this process, and by real processes."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..backends.base import BaseLockBackend
from ..exceptions import LockUnavailable
from .processes import exit_status, fork_child

BackendFactory = Callable[[], BaseLockBackend]


@dataclass
class Contention:
    """What happened: bodies that ran, updates lost or bodies that overlapped, errors of the harness."""

    entries: int = 0
    violations: int = 0
    errors: list[str] = field(default_factory=list)


def count_lost_updates(
    backend_for_thread: BackendFactory,
    name: str,
    *,
    threads: int = 4,
    entries_each: int = 15,
    within: float = 60.0,
) -> Contention:
    """Let threads read, pause and write one counter under the lock; count the updates that got lost."""
    result = Contention()
    counter = 0

    def enter() -> None:
        nonlocal counter
        seen = counter
        time.sleep(random.uniform(0, 0.002))  # noqa: S311  (the body: long enough to be overtaken)
        counter = seen + 1

    def contend() -> None:
        try:
            _enter_repeatedly(backend_for_thread(), name, enter, entries_each, within)
        except BaseException as error:
            result.errors.append(repr(error))

    started = [threading.Thread(target=contend, daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    result.entries = threads * entries_each
    result.violations = result.entries - counter
    return result


def count_overlaps(
    backend: BaseLockBackend,
    name: str,
    folder: Path,
    *,
    processes: int = 4,
    entries_each: int = 15,
    within: float = 60.0,
) -> Contention:
    """Fork ``processes`` real processes that enter a section under the lock; count the entries that met
    another.

    The section is marked by a file that only one process can create. ``backend`` was used before the fork, so
    that inherited connections would show.
    """
    children = [
        fork_child(lambda: _contend_in_child(backend, name, folder, entries_each, within)) for _ in range(processes)
    ]
    statuses = [exit_status(child) for child in children]
    result = Contention(
        entries=_size(folder / "entries"),
        violations=_size(folder / "overlaps"),
        errors=[f"a process ended with {status}" for status in statuses if status],
    )
    if (folder / "errors").exists():
        result.errors.append((folder / "errors").read_text())
    return result


def _enter_repeatedly(
    backend: BaseLockBackend, name: str, enter: Callable[[], None], entries: int, within: float
) -> None:
    give_up_at = time.monotonic() + within
    while entries:
        if time.monotonic() >= give_up_at:
            raise AssertionError(f"{entries} entries were not granted within {within:g} s")
        try:
            lease = backend.acquire(name)
        except LockUnavailable:  # split votes: fair among contenders, so try again
            lease = None
        if lease is None:
            time.sleep(random.uniform(0, 0.005))  # noqa: S311
            continue
        enter()
        entries -= 1
        backend.release(lease)


def _contend_in_child(backend: BaseLockBackend, name: str, folder: Path, entries: int, within: float) -> None:
    inside = folder / "inside"

    def enter() -> None:
        try:
            inside.touch(exist_ok=False)
        except FileExistsError:
            _append(folder / "overlaps", "x")
        else:
            time.sleep(random.uniform(0, 0.003))  # noqa: S311  (the body)
            inside.unlink(missing_ok=True)
        _append(folder / "entries", "x")

    try:
        _enter_repeatedly(backend, name, enter, entries, within)
    except BaseException:
        _append(folder / "errors", traceback.format_exc())
        raise


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
