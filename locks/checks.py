"""``manage.py check``: all problems of ``settings.LOCKS``. An unreachable store is none, it is a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core import checks

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
        return backend_class(alias, params).check_params(alias, params)
    except InvalidLockBackend as error:
        return [checks.Error(str(error), hint="See locks.backends.", obj=alias, id="aegis.locks.E001")]
