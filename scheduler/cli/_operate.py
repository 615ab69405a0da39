"""What an operator does to a schedule from the command line; each leaves a change row with who, what and why."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from scheduler import healing, pausing, retargeting
from scheduler.changes import Refused
from scheduler.cli._named import named
from scheduler.cli._values import instant


def add_actions(actions: Any) -> None:
    """Add the operating actions to those of ``aegis schedules``."""
    pause = _action(actions, "pause", "store nothing new until it is resumed; what has begun goes on")
    pause.add_argument("--reason", required=True, help="why; shown beside the schedule")
    pause.add_argument("--until", type=instant, help="resume by itself then, e.g. 2027-01-31T06:00Z")
    for name, said, several in (
        ("resume", "end a pause; what passed meanwhile is not caught up", False),
        ("enable", "let them fire from now on", True),
        ("disable", "store nothing new; what has begun goes on", True),
    ):
        parser = _action(actions, name, said, several=several)
        parser.add_argument("--reason", default="", help="why; kept in the change history")
    retarget = _action(actions, "retarget", "change the strategy of its lock name")
    wanted = retarget.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--strategy", metavar="ALIAS", help="an alias of LOCKS")
    wanted.add_argument("--lock", dest="strategy", metavar="ALIAS", help="the same, as it was called before")
    retarget.add_argument("--now", action="store_true", help="at once, although something may be open under the name")
    retarget.add_argument("--reason", default="", help="why; kept in the change history")
    _action(actions, "repair", "look again at one that is broken, or whose next run is too far away")


def _action(actions: Any, name: str, said: str, *, several: bool = False) -> ArgumentParser:
    parser: ArgumentParser = actions.add_parser(name, help=said, description=said)
    if several:
        parser.add_argument("names", nargs="+", metavar="name", help="the schedules")
    else:
        parser.add_argument("name", help="the schedule")
    parser.add_argument("--by", help="who (default: who runs this command)")
    return parser


def who_commands(by: str | None) -> str:
    """The name that is put on record: the one that was given, else who runs this command."""
    if by:
        return by
    with suppress(KeyError, OSError):  # a container may run as a number without a name
        return getpass.getuser()
    return "command line"


def _pause(*, name: str, reason: str, until: datetime | None, by: str | None, **_: Any) -> str:
    stored = pausing.pause(name, why=reason, until=until, who=who_commands(by))
    end = f"until {stored.paused_until:%Y-%m-%d %H:%M:%S} UTC" if stored.paused_until else "until it is resumed"
    return f"{name} is paused {end}."


def _resume(*, name: str, reason: str, by: str | None, **_: Any) -> str:
    pausing.resume(name, why=reason, who=who_commands(by))
    return f"{name} is resumed; what passed meanwhile is not caught up."


def _enable(*, name: str, reason: str, by: str | None, **_: Any) -> str:
    pausing.switch(name, enabled=True, why=reason, who=who_commands(by))
    return f"{name} is enabled."


def _disable(*, name: str, reason: str, by: str | None, **_: Any) -> str:
    pausing.switch(name, enabled=False, why=reason, who=who_commands(by))
    return f"{name} is disabled."


def _retarget(*, name: str, strategy: str, now: bool, reason: str, by: str | None, **_: Any) -> str:
    done = retargeting.retarget(name, strategy, now=now, why=reason, who=who_commands(by))
    if now:
        return (
            f"{name}: {done.before} -> {strategy}, at once; {done.open_ticks} ticks were open, {done.running} of "
            "them begun. A body that is inside may be overlapped."
        )
    before = done.before or "nothing"
    return f"{name}: {before} is in force; {strategy} follows when nothing under the lock name is open."


def _repair(*, name: str, by: str | None, **_: Any) -> str:
    return healing.repair(name, who=who_commands(by))


ACTIONS: dict[str, Callable[..., str]] = {
    "pause": _pause,
    "resume": _resume,
    "enable": _enable,
    "disable": _disable,
    "retarget": _retarget,
    "repair": _repair,
}


def act(action: str, *, name: str = "", names: Sequence[str] = (), **options: Any) -> Iterator[str]:
    """Do it to each, and say so: all are known, or nothing is done; a refusal stops no other, and is told last."""
    chosen = list(dict.fromkeys(names)) or [name]
    for one in chosen:
        named(one)
    refused = []
    for one in chosen:
        try:
            yield ACTIONS[action](name=one, **options)
        except Refused as refusal:
            refused.append(f"{one}: {refusal}")
    if refused:
        raise CommandError("\n".join(refused), returncode=1)
