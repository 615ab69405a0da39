"""A world that Hypothesis plays with: three holders of one name, a wire that loses things, and time that is free.

The strategy is the production code and the store is the real one. What the world controls is what no code can: a
request that is lost, or arrives long after its sender gave up; an answer that is lost or comes late; a holder that
freezes between two instructions; the end of a lease by the store's clock, at any moment; local clocks that run at
different rates. After every step the contract's promises are looked at from the outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from locks import Lease, LeaseLost, LockUnavailable, lock_backends
from locks.backends.base import BaseLockBackend
from locks.testing import FrozenClock

ACTORS = range(3)
TTL = 5.0  # seconds; a run of the machine takes less, so that no lease ends unless the world lets it
RATES = (0.995, 1.0, 1.005)  # of the local clocks to the store's: within the margin of the trust window
WIRE = st.sampled_from(["fine", "fine", "fine", "request lost", "answer lost", "late request", "late answer"])


@dataclass
class Actor:
    """One process, as far as locks know it: a backend object, a clock, and what it believes."""

    number: int
    backend: BaseLockBackend
    clock: FrozenClock
    time_passes: Callable[[], None]
    lease: Lease | None = None
    asked: UUID | None = None  # an acquire whose outcome is unknown
    wire: str = "fine"
    late: list[tuple[UUID | None, Callable[[], Any]]] = field(default_factory=list)  # an acquire's with its id

    @property
    def believes(self) -> bool:
        return self.lease is not None and self.clock() < self.lease.trusted_until

    def install_wire(self) -> None:
        """Put the wire between the strategy and its store."""
        for verb in ("_acquire", "_renew", "_release"):
            setattr(self.backend, verb, self._over_the_wire(getattr(self.backend, verb)))

    def _over_the_wire(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def sent(*args: Any, **kwargs: Any) -> Any:
            wire, self.wire = self.wire, "fine"  # one exchange; what the strategy sends after it gets through
            if wire == "late request":
                self.late.append((args[2] if len(args) > 3 else None, lambda: verb(*args, **kwargs)))
            if wire in ("late request", "request lost"):
                raise LockUnavailable(f"the world: {wire}", name="n", alias=self.backend.alias)
            answer = verb(*args, **kwargs)
            if wire == "answer lost":
                raise LockUnavailable(f"the world: {wire}", name="n", alias=self.backend.alias)
            if wire == "late answer":  # time passes everywhere: the lease is over before its holder hears of it
                self.time_passes()
            return answer

        return sent


class Leases(RuleBasedStateMachine):
    """Subclasses name the strategy and how its lease is ended in the store."""

    alias: ClassVar[str]
    expire: ClassVar[Callable[[str], None]]

    def __init__(self) -> None:
        super().__init__()
        self.name = f"machine:{uuid4().hex}"
        self.actors = [self._actor(number) for number in ACTORS]
        self.numbers: list[int] = []  # in the order of granting
        self.granted: dict[UUID, int | None] = {}
        self.ends = 0  # how often a lease has ended by time
        self.may_hold: set[UUID] = set()  # ids that the store may show as the holder

    def _actor(self, number: int) -> Actor:
        known = lock_backends[self.alias]
        actor = Actor(number, type(known)(known.alias, known.params), FrozenClock(), self.the_lease_ends)
        actor.backend.clock = actor.clock
        actor.install_wire()
        return actor

    def teardown(self) -> None:
        for actor in self.actors:
            actor.late.clear()
            if actor.lease is not None:
                actor.backend.release(actor.lease)
        shown = lock_backends[self.alias].inspect(self.name)
        if shown is not None and shown.lease_id is not None:
            lock_backends[self.alias].force_release(self.name, lease_id=shown.lease_id)

    # what may happen

    @rule(number=st.sampled_from(ACTORS), wire=WIRE)
    def acquire(self, number: int, wire: str) -> None:
        actor = self.actors[number]
        if actor.lease is not None:
            return
        lease_id = actor.asked or uuid4()
        actor.wire, actor.asked = wire, lease_id
        others = self.may_hold - {lease_id}
        self.may_hold.add(lease_id)
        try:
            lease = actor.backend.acquire(self.name, ttl=TTL, lease_id=lease_id)
        except LockUnavailable:
            return  # unknown: the same id asks again, or withdraws
        finally:
            actor.wire = "fine"
        actor.asked = None
        if lease is None:
            assert others, "refused although nobody could hold it"
            self.may_hold.discard(lease_id)
            return
        actor.lease = lease
        self._number(lease)

    def _number(self, lease: Lease) -> None:
        if lease.lease_id in self.granted:
            assert self.granted[lease.lease_id] == lease.grant_no or lease.lease_id not in self.may_hold
        self.granted[lease.lease_id] = lease.grant_no
        if lease.grant_no is not None:
            assert not self.numbers or lease.grant_no > max(self.numbers) or lease.grant_no in self.numbers
            self.numbers.append(lease.grant_no)

    @rule(number=st.sampled_from(ACTORS))
    def withdraw(self, number: int) -> None:
        actor = self.actors[number]
        if actor.asked is not None:
            actor.backend.withdraw(self.name, lease_id=actor.asked)
            self.may_hold.discard(actor.asked)
            actor.asked = None

    @rule(number=st.sampled_from(ACTORS), wire=WIRE)
    def renew(self, number: int, wire: str) -> None:
        actor = self.actors[number]
        if actor.lease is None or not actor.backend.renewable:
            return
        actor.wire = wire
        try:
            renewed = actor.backend.renew(actor.lease)
        except LeaseLost:
            actor.lease = None
        except LockUnavailable:
            return
        else:
            assert renewed.lease_id == actor.lease.lease_id and renewed.grant_no == actor.lease.grant_no
            assert renewed.lease_id in self.may_hold, "an ended lease was revived"
            actor.lease = renewed
        finally:
            actor.wire = "fine"

    @rule(number=st.sampled_from(ACTORS), wire=WIRE)
    def release(self, number: int, wire: str) -> None:
        actor = self.actors[number]
        if actor.lease is None:
            return
        lease, actor.lease, actor.wire = actor.lease, None, wire
        before, ends = self._shown(), self.ends
        try:
            released = actor.backend.release(lease)
        except LockUnavailable:
            return  # it may stand until its end: it stays among those that may hold
        finally:
            actor.wire = "fine"
        self.may_hold.discard(lease.lease_id)
        if before not in (None, lease.lease_id):
            assert not released and (self._shown() == before or self.ends > ends), "freed another's name"

    @precondition(lambda self: any(actor.late for actor in self.actors))
    @rule()
    def deliver_late(self) -> None:
        """A request arrives after its sender gave up. Nobody reads the answer."""
        actor = next(actor for actor in self.actors if actor.late)
        lease_id, request = actor.late.pop(0)
        if lease_id is not None:
            self.may_hold.add(lease_id)  # granted to somebody who does not wait for it: it ends by its ttl
        try:
            request()
        except (LockUnavailable, LeaseLost):
            return

    @rule()
    def a_ttl_passes(self) -> None:
        self.the_lease_ends()

    def the_lease_ends(self) -> None:
        """The store's clock passes the end; every local clock passes it too, at its own rate."""
        if self._shown() is not None:
            type(self).expire(self.name)
        self.may_hold.clear()
        self.ends += 1
        for actor, rate in zip(self.actors, RATES, strict=True):
            actor.clock.advance(TTL * rate)

    @rule(seconds=st.floats(0.01, TTL / 2))
    def local_time_passes(self, seconds: float) -> None:
        """Clocks of the holders run ahead of the store's: that makes them stop earlier, never later."""
        for actor in self.actors:
            actor.clock.advance(seconds)

    # what must hold

    @invariant()
    def at_most_one_believes(self) -> None:
        believing = [actor.number for actor in self.actors if actor.believes]
        if self.actors[0].backend.trust_window:
            assert len(believing) <= 1, f"actors {believing} all trust their lease"

    @invariant()
    def at_most_one_is_verified(self) -> None:
        backend = lock_backends[self.alias]
        if not backend.verifies:
            return
        standing = [actor.number for actor in self.actors if actor.lease is not None and backend.verify(actor.lease)]
        assert len(standing) <= 1, f"the claims of actors {standing} all stand"

    @invariant()
    def whoever_believes_is_shown_or_nobody_is(self) -> None:
        """What a store shows is a lease that it granted, and that has not ended."""
        shown = self._shown()
        assert shown is None or shown in self.may_hold

    def _shown(self) -> UUID | None:
        info = lock_backends[self.alias].inspect(self.name)
        alive = info is not None and (info.expires_in is None or info.expires_in > 0 or math.isinf(info.expires_in))
        return info.lease_id if info is not None and alive else None
