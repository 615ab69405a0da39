"""What an instance writes down in its folder: its starter, its processes, its addresses, what to remove."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aegis_site.embedded.errors import EmbeddedError

if TYPE_CHECKING:
    from aegis_site.embedded.marks import ProcessMark

FILE = "services.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One running or killed instance. `environment` holds passwords: only the owner may read the file."""

    starter: ProcessMark
    processes: tuple[ProcessMark, ...] = ()
    folders: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    def write(self, folder: Path) -> None:
        """Put the state into `folder` at one stroke: a reader sees the old one or the new one."""
        temporary = folder / f"{FILE}.{os.getpid()}"
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(folder / FILE)


def read(folder: Path) -> State | None:
    """Return the state kept in `folder`, None where there is none; EmbeddedError for an unreadable file."""
    from aegis_site.embedded.marks import ProcessMark

    path = folder / FILE
    try:
        data = json.loads(path.read_text())
        return State(
            starter=ProcessMark(**data["starter"]),
            processes=tuple(ProcessMark(**mark) for mark in data["processes"]),
            folders=tuple(data["folders"]),
            environment=data["environment"],
        )
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise EmbeddedError(f"{path} belongs to another user: run the command as that user.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedError(
            f"{path} cannot be read as the state of embedded services: delete the file."
        ) from error


def remove(folder: Path) -> None:
    """Forget the state kept in `folder`."""
    (folder / FILE).unlink(missing_ok=True)


def running_environment(folder: Path) -> dict[str, str]:
    """Return the addresses of the instance that runs in `folder`; nothing when none runs there."""
    state = read(folder)
    return dict(state.environment) if state is not None and state.starter.alive else {}
