"""The error tree. Three answers, three channels: a value, ``None`` for a known no, an error for *unknown*."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured


class LockError(Exception):
    """Base of every runtime error of this package. Do not raise it directly.

    ``name`` is the lock name and ``alias`` the key in ``settings.LOCKS`` the error is about, so that a
    handler need not parse the message. The message never contains an address with a password.
    """

    def __init__(self, message: str, *, name: str = "", alias: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.alias = alias

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling: Celery and multiprocessing send exceptions between processes."""
        return (_rebuild, (type(self), str(self), self.name, self.alias))


def _rebuild(kind: type[LockError], message: str, name: str, alias: str) -> LockError:
    return kind(message, name=name, alias=alias)


class LockNotAcquired(LockError):
    """The name is known to be held by another. Raised by ``exclusive()`` only; backends return ``None``."""


class LockUnavailable(LockError):
    """The store could not say: time-out, refused connection, no quorum, a late reply. ``__cause__`` is kept.

    Unknown is neither "free" nor "busy". The request may have taken effect, so whoever asked gives its
    ``lease_id`` back with ``withdraw()`` or asks again with the same one.
    """


class LeaseLost(LockError):
    """The lease was ours and is not any more: expired, taken over, force released, or no longer trusted."""


class StaleToken(LockError):
    """A later holder has raised the fence: this fencing token may not write any more."""


class InvalidLockBackend(ImproperlyConfigured):
    """An entry of ``settings.LOCKS`` is missing or wrong."""
