"""``exclusive()``: one block or function at a time under a name, over any backend."""

from __future__ import annotations

import functools
import inspect
import logging
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import ParamSpec, TypeVar
from uuid import UUID

from .backends.base import BaseLockBackend
from .base import Lease, new_lease_id, validate_name
from .exceptions import LeaseLost, LockNotAcquired, LockUnavailable
from .handler import DEFAULT_LOCK_ALIAS, lock_backends
from .keepalive import Kept, OnLost, keep_alive

logger = logging.getLogger("locks")

P = ParamSpec("P")
R = TypeVar("R")

_FIRST_PAUSE = 0.05  # seconds between two tries while waiting; doubles up to ...
_LAST_PAUSE = 1.0


class exclusive:  # noqa: N801  (reads as a keyword, like contextlib.suppress)
    """Hold ``name`` while the block or the decorated function runs; the lease is renewed meanwhile.

    >>> with exclusive("nightly-export", using="redis", ttl=10) as held:
    ...     for part in parts:
    ...         held.check()  # raises LeaseLost once the lease is no longer ours
    ...         export(part)

    ``using`` is an alias in ``settings.LOCKS``; ``ttl`` in seconds, the alias's own if not given; ``wait``
    seconds to keep trying while another holds the name (0: try once); ``on_lost`` as for ``keep_alive``.
    The block gets an object with ``lease``, ``grant_no``, ``lost`` and ``check()``.

    Raises ``LockNotAcquired`` if another holds the name, ``LockUnavailable`` if the store cannot say, and
    ``LeaseLost`` at the end of a block that came to its end after its lease did: what it has done may have
    overlapped with another. An exception of the block itself is never replaced. Trouble with giving the
    lease back is logged, never raised.

    A decorated function is tried anew on each call. Coroutine and generator functions are refused: they
    would return at once, and the lock with them.
    """

    def __init__(
        self,
        name: str,
        *,
        using: str = DEFAULT_LOCK_ALIAS,
        ttl: float | None = None,
        wait: float = 0.0,
        on_lost: OnLost | None = None,
    ) -> None:
        self.name = validate_name(name)
        self.using = using
        self.ttl = ttl
        self.wait = wait
        self.on_lost = on_lost
        self._stack: ExitStack | None = None

    def __enter__(self) -> Kept:
        if self._stack is not None:
            raise RuntimeError(f"exclusive({self.name!r}) is entered already: make a new one of it.")
        backend, lease_id = lock_backends[self.using], new_lease_id()
        try:
            lease = self._acquire(backend, lease_id)
            with ExitStack() as stack:
                stack.callback(release_quietly, backend, lease)
                kept = stack.enter_context(keep_alive(backend, lease, self.on_lost))
                stack.push(_refuse_lost_work(backend, kept))
                self._stack = stack.pop_all()
        except LockNotAcquired:
            raise
        except BaseException as trouble:
            # Also an interrupt between the store's yes and the line that would give the lease back: one that is a
            # session's has no TTL to end it; or one after that line, when the lease is kept alive already.
            self.__exit__(type(trouble), trouble, trouble.__traceback__)
            backend.withdraw(self.name, lease_id=lease_id)
            raise
        return kept

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        stack, self._stack = self._stack, None
        return stack.__exit__(kind, error, trace) if stack is not None else None

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if returns_early(function):
            raise TypeError(
                f"exclusive({self.name!r}) cannot decorate {function.__qualname__}(): it returns before its"
                " work is done. Use the lock inside it, as a context manager."
            )

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            again = exclusive(self.name, using=self.using, ttl=self.ttl, wait=self.wait, on_lost=self.on_lost)
            with again:
                return function(*args, **kwargs)

        return under_lock

    def _acquire(self, backend: BaseLockBackend, lease_id: UUID) -> Lease:
        give_up_at = backend.clock() + self.wait
        pause = _FIRST_PAUSE
        while True:
            lease = backend.acquire(self.name, ttl=self.ttl, lease_id=lease_id)
            if lease is not None:
                return lease
            left = give_up_at - backend.clock()
            if left <= 0:
                raise LockNotAcquired(
                    f"Lock {self.name!r} ({self.using}) is held by another.", name=self.name, alias=self.using
                )
            time.sleep(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311
            pause = min(_LAST_PAUSE, pause * 2)


def returns_early(function: Callable[..., object]) -> bool:
    """Whether a call of it returns before its work is done: coroutine and generator functions."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_one(function) for is_one in kinds)


def _refuse_lost_work(
    backend: BaseLockBackend, kept: Kept
) -> Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]:
    """At a clean end of the block: raise ``LeaseLost`` if the lease ended before it."""

    def leave(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            return
        kept.check()
        if not backend.verify(kept.lease):
            raise LeaseLost(
                f"Lock {kept.lease.name!r} ({kept.lease.alias}): the lease was not ours any more at its end.",
                name=kept.lease.name,
                alias=kept.lease.alias,
            )

    return leave


def release_quietly(backend: BaseLockBackend, lease: Lease) -> None:
    """Give ``lease`` back; log trouble instead of raising it over the outcome of the body."""
    try:
        if not backend.release(lease):
            logger.warning("Lock %r (%s) was not ours any more when it was given back.", lease.name, lease.alias)
    except LockUnavailable as error:
        logger.warning("Could not give the lease back, it ends with its ttl: %s", error)
