"""Clean up after a starter that was killed before it could do so itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from aegis_site.embedded import state
from aegis_site.embedded.errors import FolderInUse
from aegis_site.embedded.marks import ProcessMark

PREFIX = "aegis-"  # of the name of a temporary folder; nothing else outside the instance is ever removed
PATIENCE = 5.0  # seconds that servers told to stop by the kernel get before they are killed


def clean_up(folder: Path, notify: Callable[[str], None]) -> None:
    """End the processes and remove the data that a killed run left in `folder`; says so when there was one.

    The caller holds the folder's lock. A state whose starter still lives, though it lost the lock (its file
    was removed under it), is refused with FolderInUse: its data must not be removed under running
    servers.
    """
    found = state.read(folder)
    if found is not None:
        if found.starter.alive:
            raise FolderInUse(f"The services in {folder} are run by process {found.starter.pid}: stop it first.")
        _end(found.processes)
        remove_files(folder, Path(found.temporary))
        state.remove(folder)
        notify(f"Cleaned up {folder}: process {found.starter.pid}, which ran services there, was killed.")


def remove_files(folder: Path, temporary: Path | None) -> None:
    """Remove an instance's data and its temporary folder. The logs stay."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    if temporary is not None and temporary.name.startswith(PREFIX):
        shutil.rmtree(temporary, ignore_errors=True)


def _end(processes: Sequence[ProcessMark]) -> None:
    """Wait for processes that the kernel told to stop when their starter ended; kill those that do not."""
    give_up = time.monotonic() + PATIENCE
    while any(mark.alive for mark in processes) and time.monotonic() < give_up:
        time.sleep(0.05)
    for mark in processes:
        if mark.alive:
            psutil.Process(mark.pid).kill()
