"""The sessions of this process: those that hold a lease or ask for one, and a few that are at rest.

To make a session takes the server as long as forty leases on one that is there. So a session whose lease was given
back in good order stays for ``REST`` seconds, and serves the next lease of the same database; one lease at a time, as
before. What was not given back in good order is closed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from django.db import connections

from .. import connection
from ..clock import boottime

if TYPE_CHECKING:
    from .sessions import Session

MOST_AT_REST = 4  # sessions to one database
REST = 5.0  # seconds until a session that nobody needs is closed: sooner than anything on the way forgets it
OLDEST = 300.0  # seconds after which a session is not used for another lease: roles, addresses and settings change


class Key(NamedTuple):
    """A lease as its process knows it: the kind of lock, the database, the stored name and the id."""

    kind: str
    using: str
    name: str
    lease_id: UUID


class Place(NamedTuple):
    """Where sessions come from and what for: those of two places are never exchanged. ``kind`` as in ``Key``;
    ``ttl`` in seconds, for which the server was told to bear with silence.
    """

    kind: str
    using: str
    ttl: float
    address: tuple[object, ...]


def place_of(kind: str, using: str, ttl: float) -> Place:
    """The place of a database alias, as the settings say it now."""
    entry = connections.settings[using]
    return Place(kind, using, ttl, (entry["NAME"], entry["HOST"], entry["PORT"], entry["USER"]))


class _Process:
    """What belongs to one process, and must not be used by a forked child of it."""

    def __init__(self) -> None:
        self.sessions: set[Session] = set()
        self.held: dict[Key, Session] = {}
        self.doubtful: set[Key] = set()
        self.at_rest: list[tuple[Place, float, Session]] = []  # since when; the latest last
        self.lock = threading.Lock()
        self.sweeping = False

    def sweep(self) -> None:
        """Close what has rested for long enough, until nothing is left."""
        while True:
            time.sleep(REST / 2)
            with self.lock:
                before = boottime() - REST
                old = [entry for entry in self.at_rest if entry[1] <= before]
                self.at_rest = [entry for entry in self.at_rest if entry[1] > before]
                self.sweeping = bool(self.at_rest)
                ended = not self.sweeping
            for _, _, session in old:
                session.close()
            if ended:
                return


_process = _Process()
_inherited: list[_Process] = []


def _after_fork() -> None:
    """Start afresh in a forked child: sessions belong to the parent. Its objects stay referenced, untouched."""
    global _process
    _inherited.append(_process)
    null = os.open(os.devnull, os.O_RDWR)
    for session in [*_process.sessions, *(session for _, _, session in _process.at_rest)]:
        session.disown(null)
    os.close(null)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def add(session: Session) -> None:
    """Remember a session that asks for a lease or holds one."""
    _process.sessions.add(session)


def discard(session: Session) -> None:
    """The session is at its end."""
    _process.sessions.discard(session)


def keep(key: Key, session: Session) -> None:
    """Remember the session of a granted lease."""
    _process.held[key] = session


def find(key: Key) -> Session | None:
    """The session of a lease that this process holds."""
    return _process.held.get(key)


def forget(key: Key) -> Session | None:
    """The session of a lease that this process held until now."""
    return _process.held.pop(key, None)


def doubt(key: Key) -> None:
    """Remember that ``key`` may have been granted to a session that this process has left."""
    _process.doubtful.add(key)


def settle(key: Key) -> bool:
    """Whether there was such a doubt. It is forgotten."""
    if key not in _process.doubtful:
        return False
    _process.doubtful.discard(key)
    return True


def rest(session: Session) -> None:
    """Keep a session that holds nothing, for a while. Of too many the one that rests longest is closed."""
    process = _process
    with process.lock:
        if session not in process.sessions:  # it is another process's
            return
        process.sessions.discard(session)
        beside = [entry for entry in process.at_rest if entry[0].using == session.place.using]
        surplus = beside[: max(0, len(beside) + 1 - MOST_AT_REST)]
        process.at_rest = [entry for entry in process.at_rest if entry not in surplus]
        process.at_rest.append((session.place, boottime(), session))
        if not process.sweeping:
            with contextlib.suppress(RuntimeError):  # no thread is to be had: the next that rests tries again
                threading.Thread(target=process.sweep, name="aegis-sessions", daemon=True).start()
                process.sweeping = True
    for _, _, old in surplus:
        old.close()


def wake(place: Place) -> Session | None:
    """A session that rests and still lives, for the caller alone. The latest first: it is the freshest."""
    process = _process
    while True:
        with process.lock:
            found = next((entry for entry in reversed(process.at_rest) if entry[0] == place), None)
            if found is None:
                return None
            process.at_rest.remove(found)
            process.sessions.add(found[2])
        if not found[2].is_worn():
            return found[2]
        found[2].close()


def close_resting(using: str | None = None) -> None:
    """Close the sessions that rest, those to ``using`` only if it is given."""
    process = _process
    with process.lock:
        closing = [session for place, _, session in process.at_rest if using in (None, place.using)]
        process.at_rest = [entry for entry in process.at_rest if entry[2] not in closing]
    for session in closing:
        session.close()


connection.also_close(close_resting)


def held_sessions() -> int:
    """How many sessions this process has that hold a lease or ask for one."""
    return len(_process.sessions)


def resting_sessions() -> int:
    """How many sessions this process has that are at rest."""
    return len(_process.at_rest)
