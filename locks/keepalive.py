"""Keep-alive: leases are renewed in the background while their bodies run, and their loss is told at once.

One renewing thread per alias in use per process, so that a store that hangs delays no lease of another
store. Among the leases that are due, the one that ends first goes first. One more thread watches all trust
windows and asks no store, so that it cannot hang: a lease is told as lost when its window ends, even in the
middle of a renewal. Whoever is told of a loss is told by a thread of its own, and may take its time.

    t0   renewal sent                        trusted_until = t0(previous) + ttl - margin
    t1   no answer: sent again after a pause, until ...
    t2   ... trusted_until: the watcher tells the loss. A late "renewed" after this changes nothing any more.

A renewal answered with "not yours any more" is final at once; silence is asked again. The threads are
daemons, made on first use, and made anew in a forked child.
"""

from __future__ import annotations

import logging
import math
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connections

from . import signals
from .backends.base import BaseLockBackend
from .base import Lease
from .clock import boottime
from .connection import renewal_timeout
from .exceptions import LeaseLost, LockUnavailable
from .threads import running

logger = logging.getLogger("locks")

OnLost = Callable[[LeaseLost], None]
OnRenewed = Callable[[Lease], None]

_LONGEST_NAP = 0.5
"""Seconds a thread with something to do sleeps at most. Its sleep stops while the machine is suspended, and
the clock of leases does not: so it looks at that clock this long after waking up at the latest."""


class Kept:
    """One lease while it is kept alive. ``lease`` is its newest handle; any thread may look."""

    def __init__(
        self,
        backend: BaseLockBackend,
        lease: Lease,
        on_lost: OnLost | None = None,
        on_renewed: OnRenewed | None = None,
    ) -> None:
        self.backend = backend
        self.renewals = 0
        self.tokens: dict[str, int] = {}  # database alias -> fencing token shown there, by ``fencing.fence``
        self._lease = lease
        self._on_lost = on_lost
        self._on_renewed = on_renewed
        self._error: LeaseLost | None = None
        self._stopped = False
        self._state = threading.Lock()  # guards the fields above; held for moments only
        self.renewing = threading.Lock()  # held while a renewal is on its way
        self.next_renewal = _next_renewal(lease, backend.clock())

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def grant_no(self) -> int | None:
        """The number of the grant, where the backend numbers its grants."""
        return self._lease.grant_no

    @property
    def trusted_until(self) -> float:
        return self._lease.trusted_until

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost, or its trust window is over."""
        return self._error is not None or self._overdue()

    def check(self) -> None:
        """Raise ``LeaseLost`` if the lease is lost. Asks no store: cheap enough to be called between all
        steps.

        Advisory: a pause can still fall between this check and the effect after it. Only a fence closes
        that gap.
        """
        if self._error is not None:
            raise LeaseLost(str(self._error), name=self._lease.name, alias=self._lease.alias) from self._error
        if self._overdue():
            raise self._window_over()

    def renew(self) -> None:
        """Renew once, for the renewing thread. Sets when to come back."""
        with self.renewing:
            if self._stopped or self._error is not None:
                self.next_renewal = math.inf  # never due again: a thread that serves what stays due does nothing else
                return
            try:
                renewed = self.backend.renew(self._lease)
            except LeaseLost as error:
                self._lose(error)
            except LockUnavailable as error:
                logger.warning("Renewal without an answer, to be tried again: %s", error)
                self.next_renewal = self.backend.clock() + self._lease.ttl / 12
            else:
                self._take(renewed)

    def watch(self) -> None:
        """Tell the loss if the trust window is over, for the watching thread."""
        if self._overdue():
            self._lose(self._window_over())

    def stop(self) -> None:
        """No renewal is under way after this, and none begins; ``lost`` keeps what it says now."""
        overdue = self._overdue()
        with self._state:
            self._stopped = True
            if overdue and self._error is None:
                self._error = self._window_over()
        # Bounded by the time-out of one renewal. A renewal that arrives after the release would find
        # nothing of ours.
        if self.renewing.acquire(timeout=renewal_timeout(self._lease.ttl) + 0.1):
            self.renewing.release()

    def _take(self, renewed: Lease) -> None:
        with self._state:
            taken = self._error is None and not self._stopped
            if taken:
                self._lease = renewed
                self.renewals += 1
        if taken and self._on_renewed is not None:
            self._on_renewed(renewed)
        self.next_renewal = _next_renewal(renewed, self.backend.clock())

    def _overdue(self) -> bool:
        return not self._stopped and self._lease.trusted_until <= self.backend.clock()

    def _window_over(self) -> LeaseLost:
        return LeaseLost(
            f"Lock {self._lease.name!r} ({self._lease.alias}): the lease is lost, its trust window is over.",
            name=self._lease.name,
            alias=self._lease.alias,
        )

    def _lose(self, error: LeaseLost) -> None:
        with self._state:
            if self._error is not None or self._stopped:
                return
            self._error = error
        try:
            threading.Thread(target=self._tell_and_leave, args=(error,), name="aegis-lost", daemon=True).start()
        except RuntimeError:  # no thread is to be had: told late is better than never
            self._tell(error)

    def _tell(self, error: LeaseLost) -> None:
        """Tell the holder before anybody who only observes."""
        if self._on_lost is not None:
            try:
                self._on_lost(error)
            except Exception:
                logger.exception("on_lost failed for lock %r (%s)", self._lease.name, self._lease.alias)
        logger.warning("%s", error)
        signals.lease_lost.send_robust(
            type(self.backend), alias=self._lease.alias, name=self._lease.name, lease=self._lease, error=error
        )

    def _tell_and_leave(self, error: LeaseLost) -> None:
        try:
            self._tell(error)
        finally:
            connections.close_all()  # this thread's, which an observer may have opened


def _next_renewal(lease: Lease, now: float) -> float:
    """When a third of the ttl is over, a little earlier by chance, so that many leases do not meet at the store.

    Counted from when the lease was asked for: a start that has waited for an open guard comes here with what is left.
    Where no trust window tells that, from now.
    """
    return min(lease.trusted_until - lease.ttl, now) + lease.ttl / 3 * random.uniform(0.9, 1.0)  # noqa: S311


class _Loop:
    """A daemon thread that serves its items, each when it is due; among due ones the most urgent first."""

    def __init__(self, name: str, due: Callable[[Kept], float], serve: Callable[[Kept], None]) -> None:
        self.name = name
        self.due = due
        self.serve = serve
        self.items: set[Kept] = set()
        self.condition = threading.Condition()
        self.thread: threading.Thread | None = None
        self.wakes_at = 0.0  # boottime seconds; the thread looks around then by itself

    def add(self, kept: Kept) -> None:
        with self.condition:
            self.thread = running(self.thread, self._run, self.name)
            self.items.add(kept)
            if self.due(kept) - kept.backend.clock() < self.wakes_at - boottime():
                self.condition.notify()  # only then: short bodies would pay for switching threads

    def remove(self, kept: Kept) -> None:
        with self.condition:
            self.items.discard(kept)

    def _run(self) -> None:
        while True:
            kept = self._next()
            try:
                self.serve(kept)
            except Exception:
                # A fault of one lease must not end the thread that keeps the others. Its own trust window
                # still ends.
                logger.exception("Keep-alive of lock %r failed", kept.lease.name)
                kept.next_renewal = kept.backend.clock() + kept.lease.ttl / 12

    def _next(self) -> Kept:
        with self.condition:
            while True:
                waits = {kept: self.due(kept) - kept.backend.clock() for kept in self.items}
                late = [kept for kept, wait in waits.items() if wait <= 0]
                if late:
                    return min(late, key=lambda kept: kept.trusted_until)
                nap = min([*waits.values(), _LONGEST_NAP]) if waits else None
                self.wakes_at = math.inf if nap is None else boottime() + nap
                self.condition.wait(nap)
                self.wakes_at = 0.0


class _Process:
    """The threads of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.renewers: dict[str, _Loop] = {}
        self.watcher = _Loop("aegis-watch", lambda kept: kept.trusted_until, self._watch)

    def renewer(self, alias: str) -> _Loop:
        with self.lock:
            if alias not in self.renewers:
                self.renewers[alias] = _Loop(f"aegis-renew-{alias}", lambda kept: kept.next_renewal, Kept.renew)
            return self.renewers[alias]

    def _watch(self, kept: Kept) -> None:
        kept.watch()
        if kept.lost:  # told once; nothing is left to watch for
            self.watcher.remove(kept)
            self.renewer(kept.lease.alias).remove(kept)


_process = _Process()
_inherited: list[_Process] = []


def _after_fork() -> None:
    """Start afresh in a forked child: the threads did not come along, and leases belong to the parent."""
    global _process
    _inherited.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def keep_alive(
    backend: BaseLockBackend,
    lease: Lease,
    on_lost: OnLost | None = None,
    on_renewed: OnRenewed | None = None,
) -> Iterator[Kept]:
    """Keep ``lease`` alive for the length of the block. Give it back afterwards: this only stops renewing.

    ``on_lost`` is called once, in a thread of its own, as soon as the loss is known and at the end of the trust
    window at the latest (half a second later at most, if the machine was suspended); the signal ``lease_lost``
    follows in the same thread. ``on_renewed`` is called with the new handle after each renewal that counts, by
    the thread that renews: it must be quick. What they raise is logged. Where a lease is
    not renewable it is only watched; without a trust window there is nothing to watch either.
    """
    kept = Kept(backend, lease, on_lost, on_renewed)
    loops = [_process.watcher] if backend.trust_window else []
    if backend.trust_window and backend.renews_in_background:
        loops.append(_process.renewer(lease.alias))
    try:
        for loop in loops:
            loop.add(kept)
        yield kept
    finally:
        for loop in loops:
            loop.remove(kept)
        kept.stop()
