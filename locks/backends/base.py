"""The contract that every backend keeps, and the part of the algorithm they share.

``acquire(name, ttl=, lease_id=)``
    A ``Lease``; ``None`` only when the name is *known* to be held by another; ``LockUnavailable`` on any
    doubt. Idempotent for one ``lease_id``: after an unknown outcome ask again with the same one, or
    ``withdraw`` it.
``renew(lease)``
    A new handle with the same ``lease_id`` and ``grant_no``. ``LeaseLost`` when it is not ours any more,
    when it has expired, or when its trust window is over, *even if the store would still say yes*: an
    expired lease is never revived. ``LockUnavailable`` when the store cannot say.
``release(lease)``
    Compare-and-act on ``lease_id``: ``True`` if it was ours until now, ``False`` if not; a second call is
    harmless.
``withdraw(name, lease_id=)``
    Best effort after ``LockUnavailable`` at acquire. Logs, never raises.
``verify(lease)``
    Whether the lease still stands; asked before a result is accepted. Only backends with ``verifies`` ask
    the store.
``inspect(name)``, ``list(prefix)``, ``force_release(name, lease_id=)``
    What a store shows, for display and for the reaper; and an operator's compare-and-delete.

The trust window. The request is sent at t0, is granted by the store at some moment after t0, and the answer arrives
later still. The store ends the lease at *grant* + ttl, which is not before t0 + ttl. So the holder trusts it until
t0 + ttl - margin. Counting from the reply would be wrong: a process frozen between sending and reading would then
believe in a lease that ended long ago. A grant whose window is over when it arrives is refused and given back.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar
from uuid import UUID

from django.core import checks
from django.db import connections

from .. import signals
from ..base import MAX_TTL, Lease, LeaseInfo, LeaseInfos, new_lease_id, validate_name, validate_ttl
from ..clock import Clock, boottime
from ..exceptions import InvalidLockBackend, LeaseLost, LockUnavailable
from ..findings import Findings
from .numbering import numbering_of
from .params import DEFAULT_TTL, ParamsValidator

logger = logging.getLogger("locks")


@dataclass(frozen=True, slots=True)
class Grant:
    """A store's yes. A backend that asks in rounds sets ``sent_at``, the clock before the last round."""

    number: int | None = None
    sent_at: float | None = None
    numbering: str | None = None  # where the settings alone do not say it


class BaseLockBackend:
    """See the module's docstring for the contract. Subclasses implement the five storage verbs at the end."""

    exclusive: ClassVar[bool] = True  # does it keep two holders apart?
    renewable: ClassVar[bool] = True  # can a lease be prolonged?
    verifies: ClassVar[bool] = False  # must a lease be verified before its result is accepted?
    grant_numbers: ClassVar[bool] = False  # does the store number its grants, in their order?
    store_clock: ClassVar[bool] = True  # does a clock of the store, and no client's, decide expiry?
    survives_store_restart: ClassVar[bool] = False  # is a lease still there when the store comes back?
    bounded_takeover: ClassVar[bool] = True  # is a dead holder's name free after a known time?
    trust_window: ClassVar[bool] = True  # does a lease end for its holder with the clock alone?
    session_bound: ClassVar[bool] = False  # does a lease end with the connection that it was taken on?

    minimum_ttl: ClassVar[float] = 0.1  # seconds; below it margins and time-outs leave nothing of a lease
    params_validator: ClassVar[type[ParamsValidator]] = ParamsValidator
    numbering = cached_property(numbering_of)

    servers: Sequence[str] = ()  # host:port of what LOCATION names, without user and password
    longest_exchange: float | None = None  # seconds until an exchange with the store is given up, where it is known

    clock: Clock = staticmethod(boottime)

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        problems = self.check_params(alias, params)
        errors = [problem for problem in problems if problem.is_serious()]
        if errors:
            raise InvalidLockBackend(" ".join(f"{error.msg} {error.hint or ''}".strip() for error in errors))
        self.alias = alias
        self.params = dict(params)
        self.options: dict[str, Any] = dict(params.get("OPTIONS") or {})
        self.key_prefix: str = params.get("KEY_PREFIX", "")
        self.ttl = float(params.get("TTL", DEFAULT_TTL))
        self.maximum_ttl = MAX_TTL

    @classmethod
    def check_params(cls, alias: str, params: Mapping[str, Any]) -> list[checks.CheckMessage]:
        """Everything that is wrong with one entry of ``settings.LOCKS``. Never asks a store."""
        return cls.params_validator(alias, params, cls.minimum_ttl).messages()

    def check(self) -> list[checks.CheckMessage]:
        """Problems of this backend's settings, for ``manage.py check``."""
        return self.check_params(self.alias, self.params)

    @property
    def renew_every(self) -> float:
        """Seconds between two renewals of a lease with the default ttl."""
        return self.ttl / 3

    @property
    def takeover_bound(self) -> float | None:
        """Seconds after which a dead holder's name is free, at the default ttl. ``None``: no such bound."""
        return self.ttl if self.bounded_takeover else None

    @property
    def renews_in_background(self) -> bool:
        """Whether keep-alive should renew at present."""
        return self.renewable

    def clean_ttl(self, ttl: float | None) -> float:
        """``ttl`` as this backend can keep it (its default for ``None``), else ``ValueError`` saying why."""
        if ttl is None:
            return self.ttl
        return validate_ttl(ttl, minimum=self.minimum_ttl, maximum=self.maximum_ttl)

    # the contract

    def acquire(self, name: str, *, ttl: float | None = None, lease_id: UUID | None = None) -> Lease | None:
        """Ask for ``name`` once, without waiting for its holder. See the contract above."""
        validate_name(name)
        ttl = self.clean_ttl(ttl)
        self._refuse_inside_transaction(name)
        own_id = lease_id or new_lease_id()
        try:
            lease = self._ask(name, ttl, own_id)
        except LockUnavailable:
            if lease_id is None:  # nobody else knows the id, so nobody else can give it back
                self.withdraw(name, lease_id=own_id)
            raise
        if lease is None:
            signals.lease_refused.send_robust(type(self), alias=self.alias, name=name)
        else:
            signals.lease_acquired.send_robust(type(self), alias=self.alias, name=name, lease=lease)
        return lease

    def renew(self, lease: Lease, *, ttl: float | None = None) -> Lease:
        """Prolong ``lease`` to ``ttl`` seconds from now (its own by default); never shortens it."""
        ttl = lease.ttl if ttl is None else self.clean_ttl(ttl)
        sent_at = self.clock()
        if lease.trusted_until <= sent_at:
            raise self._lost(lease, "its trust window is over")
        if not self._renew(lease, ttl):
            raise self._lost(lease, "the store no longer shows it as ours")
        trusted_until = max(lease.trusted_until, self._trusted_until(sent_at, ttl))
        if trusted_until <= self.clock():
            raise self._lost(lease, "the answer to its renewal came after its trust window")
        return replace(lease, ttl=ttl, trusted_until=trusted_until)

    def release(self, lease: Lease) -> bool:
        """Give ``lease`` back. ``False`` when it was not ours any more. See the contract above."""
        released = self._release(lease.name, lease.lease_id, lease.grant_no)
        if released:
            signals.lease_released.send_robust(type(self), alias=self.alias, name=lease.name, lease_id=lease.lease_id)
        return released

    def withdraw(self, name: str, *, lease_id: UUID) -> None:
        """Give back whatever ``lease_id`` may hold after an unknown outcome. Logs, never raises.

        A request still on its way can be granted after this: such a grant is used by nobody and ends with
        its ttl.
        """
        try:
            self._release(name, lease_id, None)
        except Exception as error:
            logger.warning(
                "Lock %r (%s): could not withdraw %s after an unknown outcome; if granted it ends by its ttl."
                " %s: %s", name, self.alias, lease_id, type(error).__name__, error,
            )  # fmt: skip

    def verify(self, lease: Lease) -> bool:
        """Whether ``lease`` still stands. ``True`` without asking where the trust window already decides."""
        return True

    def inspect(self, name: str) -> LeaseInfo | None:
        """Who holds ``name``, or ``None`` if nobody does. ``LockUnavailable`` when the store cannot say."""
        raise NotImplementedError

    def list(self, prefix: str = "") -> LeaseInfos:
        """All held names that begin with ``prefix``, in order. For display."""
        raise NotImplementedError

    def force_release(self, name: str, *, lease_id: UUID) -> bool:
        """An operator ends the lease ``lease_id``, if it is still the one that holds ``name``.

        Compare-and-delete: a holder that came after the one the operator looked at is left alone. The body
        of the released holder goes on until it notices, so an overlap must be expected.
        """
        released = self._force_release(name, lease_id)
        if released:
            logger.warning("Lock %r (%s): lease %s was force released.", name, self.alias, lease_id)
            signals.lease_force_released.send_robust(type(self), alias=self.alias, name=name, lease_id=lease_id)
        return released

    def place(self) -> Sequence[str]:
        """What tells the store from others of its kind, for ``grant_numbers``, without user and password."""
        return self.servers

    def prepare(self) -> float:
        """Get the store ready before the first acquire; seconds until it can grant. For a quorum only."""
        return 0.0

    def examine(self) -> Findings:
        """What is healthy and unhealthy about the store, asked now; raises nothing of the store. For people."""
        return []

    def close(self) -> None:
        """Drop this process's connections of this backend. They are made again on the next use."""

    # shared parts

    def _ask(self, name: str, ttl: float, lease_id: UUID) -> Lease | None:
        holder = describe_holder()
        sent_at = self.clock()
        grant = self._acquire(name, ttl, lease_id, holder)
        if grant is None:
            return None
        trusted_until = self._trusted_until(sent_at if grant.sent_at is None else grant.sent_at, ttl)
        if trusted_until <= self.clock():
            raise LockUnavailable(
                f"Lock {name!r} ({self.alias}): the grant arrived after its trust window, so it is not used.",
                name=name, alias=self.alias,
            )  # fmt: skip
        return Lease(
            name=name, alias=self.alias, lease_id=lease_id, holder=holder, ttl=ttl, grant_no=grant.number,
            trusted_until=trusted_until, numbering=grant.numbering or self.numbering,
        )  # fmt: skip

    def _trusted_until(self, sent_at: float, ttl: float) -> float:
        return sent_at + ttl - trust_margin(ttl) if self.trust_window else math.inf

    def _lost(self, lease: Lease, why: str) -> LeaseLost:
        return LeaseLost(
            f"Lock {lease.name!r} ({self.alias}): the lease is lost, {why}.", name=lease.name, alias=self.alias
        )

    def _refuse_inside_transaction(self, name: str) -> None:
        """Refuse to acquire while the calling thread is inside ``transaction.atomic()``.

        The lease would be given back before the effects it protects are committed: the next holder would
        then read the state from before them. Blocks opened by ``TestCase`` do not count, or no user could
        test anything.
        """
        for connection in connections.all(initialized_only=True):
            if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
                raise RuntimeError(
                    f"Lock {name!r} ({self.alias}) cannot be acquired inside transaction.atomic() on database"
                    f" {connection.alias!r}: open the transaction inside the lock, not around it. In a view"
                    " under ATOMIC_REQUESTS use transaction.non_atomic_requests."
                )

    def _stored(self, name: str) -> str:
        """The name as the store knows it: aliases with different prefixes share a store and nothing else."""
        return f"{self.key_prefix}:{name}" if self.key_prefix else name

    def _told(self, stored: str) -> str:
        """The reverse of ``_stored``."""
        return stored[len(self.key_prefix) + 1 :] if self.key_prefix else stored

    # storage verbs, each one exchange with the store; they raise LockUnavailable on any doubt

    def _acquire(self, name: str, ttl: float, lease_id: UUID, holder: str) -> Grant | None:
        """Take ``name`` if it is free, expired or held by ``lease_id``. ``None``: known to be held."""
        raise NotImplementedError

    def _renew(self, lease: Lease, ttl: float) -> bool:
        """Prolong, if it is alive and still held by exactly this lease. ``False``: known not to be."""
        raise NotImplementedError

    def _release(self, name: str, lease_id: UUID, grant_no: int | None) -> bool:
        """Free ``name`` if ``lease_id`` holds it (and, if given, by exactly that grant)."""
        raise NotImplementedError

    def _force_release(self, name: str, lease_id: UUID) -> bool:
        """The same, from a process that need not be the holder's."""
        return self._release(name, lease_id, None)


def trust_margin(ttl: float) -> float:
    """Seconds by which the holder stops before the store does: their clocks run at different rates."""
    return 0.01 * ttl + 0.005


def describe_holder() -> str:
    """``host:pid:thread``, for people only. Two holders on one host must never be told apart by it."""
    return f"{_host()}:{os.getpid()}:{threading.current_thread().name}"[:200]


_host = lru_cache(maxsize=1)(socket.gethostname)
