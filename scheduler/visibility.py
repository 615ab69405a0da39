"""The visibility time-out that the broker's transport really uses, and the places where people set it in vain.

Redis has no acknowledgements. Celery's transport keeps what was delivered and not acknowledged, and delivers it again
when the visibility time-out has passed, whether the first copy runs or not. It is read from one place only: the key
``visibility_timeout`` of the setting ``broker_transport_options``. Anywhere else it is silently ignored and the
default, an hour, stays in force. No store is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery import current_app
from django.conf import settings

KEY = "visibility_timeout"
_SPELT = re.compile(r"visibility[-_ ]*time[-_ ]*out", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """``value``: what the transport uses; ``None``: it has no such time-out. ``given``: whether a setting says so."""

    value: Any
    given: bool = False
    misplaced: tuple[str, ...] = ()

    @property
    def seconds(self) -> float | None:
        """The value as a number, where it is one that the transport can calculate with."""
        usable = isinstance(self.value, int | float) and not isinstance(self.value, bool) and self.value > 0
        return float(self.value) if usable else None


def effective() -> Visibility:
    """As a worker of this project would read it: from the connection that Celery makes, which is not opened.

    Raises what Celery raises for a broker's URL that it cannot use.
    """
    connection = current_app.connection_for_read()
    channel = getattr(connection.get_transport_cls(), "Channel", None)
    default = getattr(channel, KEY, None) or getattr(channel, f"default_{KEY}", None)
    options = connection.transport_options or {}
    known = isinstance(default, int | float)  # a class that knows it from nowhere else has a property
    if channel is None or not (known or hasattr(channel, KEY)):
        return Visibility(value=None)
    value = options.get(KEY, default)
    return Visibility(value=value, given=KEY in options, misplaced=tuple(sorted(_misplaced(value))))


def setting() -> str:
    """How this project spells the setting that is read."""
    return f"{_prefix()}BROKER_TRANSPORT_OPTIONS"


def right_place() -> str:
    """The one place where the time-out is read."""
    return f"{setting()}[{KEY!r}]"


def _prefix() -> str:
    namespace = getattr(current_app, "namespace", None)
    return f"{namespace}_" if namespace else ""


def _misplaced(value: Any) -> Iterator[str]:
    """Where another value stands that nothing reads, as ``NAME = value``."""
    for name in dir(settings):
        if name.isupper():
            yield from _in_setting(name, getattr(settings, name), value, read=name == setting())
    conf = current_app.conf
    yield from _differing("app.conf.visibility_timeout", getattr(conf, KEY, None), value)
    for name in ("result_backend_transport_options", "broker_transport_options"):
        if conf.get(name) != getattr(settings, f"{_prefix()}{name.upper()}", None):  # set elsewhere than there
            yield from _in_options(f"app.conf.{name}", conf.get(name), value, read=name.startswith("broker"))


def _in_setting(name: str, found: Any, value: Any, *, read: bool) -> Iterator[str]:
    if _SPELT.search(name):
        yield from _differing(name, found, value)
    elif "TRANSPORT_OPTIONS" in name:
        yield from _in_options(name, found, value, read=read)


def _in_options(name: str, options: Any, value: Any, *, read: bool) -> Iterator[str]:
    """Within a dictionary of options, also one level below and under another spelling."""
    for key, found in options.items() if isinstance(options, Mapping) else ():
        if isinstance(found, Mapping):
            yield from _in_options(f"{name}[{key!r}]", found, value, read=False)
        elif _SPELT.fullmatch(str(key)) and not (read and key == KEY):
            yield from _differing(f"{name}[{key!r}]", found, value)


def _differing(place: str, found: Any, value: Any) -> Iterator[str]:
    if isinstance(found, int | float | str) and not isinstance(found, bool) and str(found) != str(value):
        yield f"{place} = {found}"
