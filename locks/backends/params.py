"""What may stand in one entry of ``settings.LOCKS``, and how a mistake in it is told.

The same rules serve ``manage.py check`` (all problems at once, with ids) and the constructor of a backend
(raises). Ids: E001 BACKEND, E002 unknown key, E003 TTL, E004 KEY_PREFIX, E005 OPTIONS, E006 LOCATION, E007
quorum nodes, E008 QUARANTINE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.core import checks

from ..base import validate_ttl

DEFAULT_TTL = 10.0
KNOWN_KEYS = frozenset({"BACKEND", "LOCATION", "TTL", "KEY_PREFIX", "OPTIONS"})
_PREFIX = re.compile(r"[a-z0-9._:-]{0,50}")

OptionRule = Callable[[Any], str | None]
"""Returns what is wrong with an option's value, or ``None``."""


def positive_seconds(value: Any) -> str | None:
    try:
        validate_ttl(value)
    except ValueError:
        return "give a positive number of seconds"
    return None


def positive_count(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return None
    return "give a whole number above zero"


class ParamsValidator:
    """Collects the problems of one entry. Subclasses add the rules of their backend in ``check_backend``."""

    options: ClassVar[Mapping[str, OptionRule]] = {}

    def __init__(self, alias: str, params: Mapping[str, Any], minimum_ttl: float) -> None:
        self.alias = alias
        self.params = params
        self.minimum_ttl = minimum_ttl
        self.found: list[checks.CheckMessage] = []

    def messages(self) -> list[checks.CheckMessage]:
        self.check_keys()
        self.check_ttl()
        self.check_prefix()
        self.check_options()
        self.check_backend()
        return self.found

    def error(self, key: str, problem: str, remedy: str, number: int) -> None:
        where = f"LOCKS[{self.alias!r}]" + (f"[{key!r}]" if key else "")
        self.found.append(
            checks.Error(f"{where}: {problem}.", hint=f"{remedy}.", obj=self.alias, id=f"aegis.locks.E{number:03}")
        )

    def check_keys(self) -> None:
        for key in sorted(set(self.params) - KNOWN_KEYS, key=str):
            self.error("", f"unknown key {key!r}", f"Use only {', '.join(sorted(KNOWN_KEYS))}", 2)

    def check_ttl(self) -> None:
        try:
            validate_ttl(self.params.get("TTL", DEFAULT_TTL), minimum=self.minimum_ttl)
        except ValueError as error:
            self.error("TTL", str(error).rstrip("."), "A lease must end: give seconds, for example 10", 3)

    def check_prefix(self) -> None:
        prefix = self.params.get("KEY_PREFIX", "")
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            self.error("KEY_PREFIX", f"{prefix!r} is no valid prefix", "Use up to 50 of a-z 0-9 . _ : -", 4)

    def check_options(self) -> None:
        options = self.params.get("OPTIONS") or {}
        if not isinstance(options, Mapping):
            self.error("OPTIONS", f"{options!r} is no mapping", "Give a dict", 5)
            return
        for key, value in options.items():
            rule = self.options.get(key)
            if rule is None:
                known = ", ".join(sorted(self.options)) or "none"
                self.error("OPTIONS", f"unknown option {key!r}", f"This backend knows: {known}", 5)
            elif problem := rule(value):
                self.error("OPTIONS", f"{key!r} is {value!r}", problem[0].upper() + problem[1:], 5)

    def check_backend(self) -> None:
        """Rules of one backend, such as its LOCATION."""

    def refuse_location(self) -> None:
        if self.params.get("LOCATION"):
            self.error("LOCATION", "this backend has no location", "Remove it", 6)
