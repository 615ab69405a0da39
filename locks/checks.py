"""``manage.py check``: all problems of ``settings.LOCKS``. An unreachable store is none, it is a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core import checks

from .backends.base import BaseLockBackend
from .exceptions import InvalidLockBackend
from .handler import backend_class


@checks.register("aegis")
def check_lock_settings(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Problems of each alias of ``settings.LOCKS``, with the ids listed in ``backends.params``."""
    entries = getattr(settings, "LOCKS", {})
    if not isinstance(entries, Mapping):
        return [checks.Error("LOCKS is no mapping.", hint="Give a dict, shaped like CACHES.", id="aegis.locks.E001")]
    found: list[checks.CheckMessage] = []
    for alias, params in entries.items():
        found += check_alias(alias, params)
    return found


def check_alias(alias: str, params: Any) -> list[checks.CheckMessage]:
    """Problems of one alias."""
    try:
        kind = backend_class(alias, params)
    except InvalidLockBackend as error:
        return [checks.Error(str(error), hint="See locks.backends.", obj=alias, id="aegis.locks.E001")]
    found = list(kind.check_params(alias, params))
    if not any(message.is_serious() for message in found):
        found += check_times(kind(alias, dict(params)))
    return found


def check_times(backend: BaseLockBackend) -> Iterator[checks.CheckMessage]:
    """Whether a lease outlives a renewal that failed, and an answer that is slow. Asks no store."""
    where = f"LOCKS[{backend.alias!r}]"
    if backend.renewable and backend.renew_every > backend.ttl / 3:
        yield checks.Error(
            f"{where}: a lease of {backend.ttl:g} s is renewed every {backend.renew_every:g} s: one hiccup loses it.",
            hint="Renew every third of the TTL, or more often.",
            obj=backend.alias,
            id="aegis.locks.E009",
        )
    if backend.longest_exchange is not None and backend.ttl <= backend.longest_exchange:
        yield checks.Warning(
            f"{where}['TTL'] is {backend.ttl:g} s, and an answer may take {backend.longest_exchange:g} s: "
            "one slow answer loses the lease.",
            hint="Raise the TTL to three times that, or lower the time-out in OPTIONS.",
            obj=backend.alias,
            id="aegis.locks.W002",
        )
