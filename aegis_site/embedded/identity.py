"""The user that servers run as. PostgreSQL refuses to run as root, so root lends it an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aegis_site.embedded.errors import EmbeddedError

UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user id and its group id."""

    uid: int
    gid: int


def server_identity() -> Identity | None:
    """Return the user to run servers as, None for the present one.

    Raises EmbeddedError when the present user is root and there is no unprivileged user to lend.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and this system has no user {UNPRIVILEGED!r} to run it as: "
            "run the command as an ordinary user, or set DATABASE_URL."
        ) from None
    return Identity(entry.pw_uid, entry.pw_gid)


def make_folder(path: Path, identity: Identity | None, mode: int = 0o700) -> Path:
    """Make `path` (its parent must exist) for `identity`, with exactly `mode` whatever the umask is."""
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    give(path, identity)
    return path


def give(path: Path, identity: Identity | None) -> None:
    """Make `identity` the owner of `path`."""
    if identity is not None:
        os.chown(path, identity.uid, identity.gid)


def reachable(path: Path, identity: Identity | None) -> bool:
    """Whether `identity` may enter each folder above `path`; the present user finds out by trying."""
    if identity is None:
        return True
    return all(_may_enter(parent, identity) for parent in path.resolve().parents)


def readable_tree(root: Path, identity: Identity | None) -> bool:
    """Whether `identity` may read everything under `root`, `root` included."""
    if identity is None:
        return True
    return reachable(root, identity) and all(_may_read(path) for path in _walk(root))


def copy_for(root: Path, target: Path) -> Path:
    """Copy the tree `root` to `target`, readable by everyone who may enter the folder of `target`."""
    shutil.copytree(root, target, symlinks=True)
    for path in _walk(target):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
    return target


def _may_enter(folder: Path, identity: Identity) -> bool:
    found = folder.stat()
    if found.st_uid == identity.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == identity.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _may_read(path: Path) -> bool:
    mode = path.stat().st_mode
    wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() or mode & stat.S_IXUSR else 0)
    return mode & wanted == wanted


def _walk(root: Path) -> Iterator[Path]:
    yield root
    if root.is_dir():
        yield from root.rglob("*")
