"""What an instance writes down in its folder: its starter, its processes, its addresses, what to remove."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aegis_site.embedded.errors import EmbeddedError
from aegis_site.embedded.marks import ProcessMark

FILE = "services.json"


def embedded_folder(project: Path) -> Path:
    """Return where the services of a project live: AEGIS_DIR, else `.aegis` in the project."""
    return Path(os.environ.get("AEGIS_DIR") or project / ".aegis").absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One running or killed instance. `environment` holds passwords: only the owner may read the file."""

    starter: ProcessMark
    temporary: str  # the folder outside the instance's own: sockets, copies
    processes: tuple[ProcessMark, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    def write(self, folder: Path) -> None:
        """Put the state into `folder` at one stroke: a reader sees the old one or the new one."""
        temporary = folder / f"{FILE}.{os.getpid()}"
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(folder / FILE)


def read(folder: Path) -> State | None:
    """Return the state kept in `folder`, None where there is none; EmbeddedError for an unreadable file."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text())
        return State(
            starter=ProcessMark(**data["starter"]),
            processes=tuple(ProcessMark(**mark) for mark in data["processes"]),
            temporary=data["temporary"],
            environment=data["environment"],
        )
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise EmbeddedError(f"{path} belongs to another user: run the command as that user.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedError(f"{path} cannot be read as the state of embedded services: delete the file.") from error


def remove(folder: Path) -> None:
    """Forget the state kept in `folder`."""
    (folder / FILE).unlink(missing_ok=True)


def running_environment(folder: Path) -> dict[str, str]:
    """Return the addresses of the instance that runs in `folder`; nothing when none runs there."""
    state = read(folder)
    return dict(state.environment) if state is not None and state.starter.alive else {}
