"""The contract of ``locks.backends.base`` as tests. Every backend runs it whole, against its real store.

A mixin and no ``TestCase``, so that it is not collected by itself and can be used with any kind of test
class:

    @pytest.mark.django_db
    class TestMyBackend(LockBackendContract):
        alias = "mine"
        def expire(self, name): ...
        def store_down(self): ...

Only the backend's capability flags decide which tests apply; a test that does not apply skips and says why.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
from django.db import transaction

from ..backends.base import BaseLockBackend
from ..base import Lease
from ..exceptions import LeaseLost, LockUnavailable
from ..findings import Finding, Level
from ..handler import lock_backends
from ..keepalive import keep_alive
from .clock import FrozenClock, answer_late
from .contention import count_lost_updates, count_overlaps
from .waiting import wait_until

ODD_NAMES = ("a:b", "a-b", "a_b", "axb", "..", ":", "_", "0", "a" * 200)


@dataclass
class Outage:
    """A backend of the kind under test whose store is down, how to bring the store back, and down again."""

    backend: BaseLockBackend
    end: Callable[[], None]
    begin: Callable[[], None] = lambda: None


class LockBackendContract:
    """Subclasses set ``alias`` and give the two hooks. ``make_backend`` gives a backend nobody else uses."""

    alias: str
    short_ttl = 3.0
    """Seconds; the ttl of the few tests that let a lease live longer than it."""

    # hooks

    def expire(self, name: str) -> None:
        """Let the lease on ``name`` expire in the store, now. Replaces sleeping."""
        raise NotImplementedError

    def store_down(self) -> AbstractContextManager[Outage]:
        """The real store is out of reach, under connections that were open, until the outage ends."""
        raise NotImplementedError

    def make_backend(self) -> BaseLockBackend:
        """A new backend with the settings of ``alias``, which a test may tamper with."""
        backend = lock_backends[self.alias]
        return type(backend)(backend.alias, backend.params)

    # help

    @property
    def backend(self) -> BaseLockBackend:
        return lock_backends[self.alias]

    @pytest.fixture
    def name(self) -> Iterator[str]:
        """A lock name of this test only."""
        name = f"contract:{uuid.uuid4().hex}"
        yield name
        shown = self.backend.inspect(name)
        if shown is not None and shown.lease_id is not None:
            self.backend.force_release(name, lease_id=shown.lease_id)

    def acquired(self, name: str, backend: BaseLockBackend | None = None, ttl: float | None = None) -> Lease:
        """A lease on ``name``, which must be free."""
        lease = (backend or self.backend).acquire(name, ttl=ttl)
        assert lease is not None, f"{name} is not free"
        return lease

    def needs(self, flag: str) -> None:
        """Skip the test unless the backend claims ``flag``."""
        if not getattr(self.backend, flag):
            pytest.skip(f"{self.alias}: {flag} is false")

    def needs_not(self, flag: str) -> None:
        """Skip the test if the backend claims ``flag``."""
        if getattr(self.backend, flag):
            pytest.skip(f"{self.alias}: {flag} is true")

    # examination

    def test_an_examination_finds_the_store_healthy_enough_to_run(self, name: str) -> None:
        """A backend may say nothing. What it says names no key of its own afterwards."""
        assert self.backend.release(self.acquired(name))
        assert [f for f in self.backend.examine() if f.level is Level.FAIL] == []
        assert self.backend.list("aegis.doctor") == []

    def test_an_examination_raises_nothing_of_a_store_that_is_down(self) -> None:
        with self.store_down() as outage:
            found = outage.backend.examine()
        assert all(isinstance(finding, Finding) for finding in found)
        assert not found or any(finding.level is Level.FAIL for finding in found)

    # exclusion

    def test_second_acquire_returns_none(self, name: str) -> None:
        self.acquired(name)
        if self.backend.exclusive:
            assert self.backend.acquire(name) is None
        else:
            assert self.backend.acquire(name) is not None

    def test_names_are_independent(self, name: str) -> None:
        first, second = self.acquired(name), self.acquired(f"{name}.2")
        assert self.backend.release(second)
        assert self.backend.release(first)

    def test_release_then_acquire_at_once(self, name: str) -> None:
        for _ in range(3):
            assert self.backend.release(self.acquired(name))

    def test_two_threads_of_one_process_exclude_each_other(self, name: str) -> None:
        self.needs("exclusive")
        self.acquired(name)
        answers: list[Lease | None] = []
        thread = Thread(target=lambda: answers.append(lock_backends[self.alias].acquire(name)))
        thread.start()
        thread.join()
        assert answers == [None]

    def test_the_same_backend_object_excludes_itself_in_another_thread(self, name: str) -> None:
        self.needs("exclusive")
        backend, answers = self.backend, []
        self.acquired(name)
        thread = Thread(target=lambda: answers.append(backend.acquire(name)))
        thread.start()
        thread.join()
        assert answers == [None]

    def test_threads_lose_no_update(self, name: str) -> None:
        self.needs("exclusive")
        result = count_lost_updates(lambda: lock_backends[self.alias], name)
        assert (result.errors, result.violations) == ([], 0)

    def test_processes_do_not_overlap(self, name: str, tmp_path: Path) -> None:
        self.needs("exclusive")
        self.backend.release(self.acquired(name))  # so that the children inherit open connections
        result = count_overlaps(self.backend, name, tmp_path)
        assert (result.errors, result.violations) == ([], 0)
        assert result.entries == 60
        assert self.backend.release(self.acquired(name)), "the parent's connections did not survive its children"

    # identity

    def test_each_acquisition_has_a_fresh_random_id(self, name: str) -> None:
        ids = set()
        for _ in range(20):
            lease = self.acquired(name)
            assert (lease.lease_id.version, lease.lease_id.variant) == (4, uuid.RFC_4122)
            ids.add(lease.lease_id)
            self.backend.release(lease)
        assert len(ids) == 20
        # 122 random bits each: no bit of them may be the same in all twenty, as a part made of a constant
        # would be.
        bits = [lease_id.int for lease_id in ids]
        always_one, always_zero = bits[0], ~bits[0]
        for value in bits:
            always_one, always_zero = always_one & value, always_zero & ~value
        version_and_variant = (0xF << 76) | (0b11 << 62)
        assert bin(always_one & ~version_and_variant).count("1") <= 3
        assert bin(always_zero & ~version_and_variant & (2**128 - 1)).count("1") <= 3

    def test_the_same_id_gets_the_same_grant_again(self, name: str) -> None:
        lease_id = uuid.uuid4()
        first = self.backend.acquire(name, lease_id=lease_id)
        again = self.backend.acquire(name, lease_id=lease_id)
        assert first is not None
        assert again is not None
        assert (again.lease_id, again.grant_no) == (lease_id, first.grant_no)
        if self.backend.exclusive:
            assert self.backend.acquire(name) is None

    def test_lease_says_what_was_asked_for(self, name: str) -> None:
        lease = self.acquired(name, ttl=5)
        assert (lease.name, lease.alias, lease.ttl) == (name, self.alias, 5.0)
        assert lease.holder
        assert (lease.grant_no is not None) == self.backend.grant_numbers
        assert (lease.trusted_until < math.inf) == self.backend.trust_window

    def test_grant_number_grows_across_release_and_expiry(self, name: str) -> None:
        self.needs("grant_numbers")
        numbers = []
        for number in range(6):
            lease = self.acquired(name)
            numbers.append(lease.grant_no or 0)
            if number % 2:
                self.backend.release(lease)
            else:
                self.expire(name)
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0

    def test_whose_numbers_they_are_is_told(self) -> None:
        """Else those of another store, which comes behind the alias later, would be compared with them."""
        self.needs("grant_numbers")
        assert any(self.backend.place())

    def test_grant_number_of_a_reacquired_expired_lease_is_new(self, name: str) -> None:
        self.needs("grant_numbers")
        self.needs("trust_window")
        lease_id = uuid.uuid4()
        first = self.backend.acquire(name, lease_id=lease_id)
        self.expire(name)
        second = self.backend.acquire(name, lease_id=lease_id)
        assert first is not None
        assert second is not None
        assert (second.grant_no or 0) > (first.grant_no or 0)

    # expiry and takeover

    def test_expired_lease_can_be_taken_over(self, name: str) -> None:
        old = self.acquired(name)
        self.expire(name)
        assert self.acquired(name).lease_id != old.lease_id

    def test_stale_release_does_not_free_the_next_holder(self, name: str) -> None:
        self.needs("exclusive")
        old = self.acquired(name)
        self.expire(name)
        new = self.acquired(name)
        assert self.backend.release(old) is False
        assert self.backend.acquire(name) is None
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.lease_id == new.lease_id

    def test_stale_renew_raises_and_does_not_prolong(self, name: str) -> None:
        self.needs("exclusive")
        old = self.acquired(name)
        self.expire(name)
        new = self.acquired(name)
        before = self.backend.inspect(name)
        with pytest.raises(LeaseLost) as caught:
            self.backend.renew(old, ttl=self.backend.maximum_ttl)
        assert (caught.value.name, caught.value.alias) == (name, self.alias)
        after = self.backend.inspect(name)
        assert before is not None
        assert after is not None
        assert after.lease_id == new.lease_id
        if not self.backend.session_bound:
            assert after.expires_in is not None
            assert before.expires_in is not None
            assert after.expires_in <= before.expires_in

    def test_expired_lease_is_never_revived(self, name: str) -> None:
        self.needs("renewable")
        lease = self.acquired(name)
        self.expire(name)
        with pytest.raises(LeaseLost):
            self.backend.renew(lease)
        assert self.backend.inspect(name) is None

    def test_double_release_is_harmless(self, name: str) -> None:
        lease = self.acquired(name)
        assert self.backend.release(lease) is True
        assert self.backend.release(lease) is (not self.backend.exclusive)
        self.acquired(name)

    def test_takeover_bound_is_told(self) -> None:
        assert (self.backend.takeover_bound is not None) == self.backend.bounded_takeover
        assert self.backend.renew_every == pytest.approx(self.backend.ttl / 3)

    # renewal

    def test_renew_keeps_id_and_number_and_moves_the_window(self, name: str) -> None:
        lease = self.acquired(name)
        renewed = self.backend.renew(lease)
        assert (renewed.lease_id, renewed.grant_no, renewed.name) == (lease.lease_id, lease.grant_no, name)
        if self.backend.trust_window:
            assert renewed.trusted_until > lease.trusted_until

    def test_renew_never_shortens(self, name: str) -> None:
        self.needs("renewable")
        lease = self.acquired(name)
        renewed = self.backend.renew(lease, ttl=lease.ttl / 2)
        assert renewed.trusted_until >= lease.trusted_until
        shown = self.backend.inspect(name)
        assert shown is not None
        if not self.backend.session_bound:
            assert shown.expires_in is not None
            assert shown.expires_in > lease.ttl / 2

    def test_no_renewal_after_the_trust_window_even_if_the_store_would(self, name: str) -> None:
        self.needs("trust_window")
        backend = self.make_backend()
        lease = self.acquired(name, backend)
        clock = FrozenClock()
        clock.advance(lease.ttl)  # this machine was suspended; the store still shows the lease
        backend.clock = clock
        with pytest.raises(LeaseLost):
            backend.renew(lease)
        shown = self.backend.inspect(name)
        assert shown is not None
        if not self.backend.session_bound:
            assert shown.expires_in is not None
            assert shown.expires_in <= lease.ttl

    def test_late_answer_to_a_renewal_is_a_lost_lease(self, name: str) -> None:
        self.needs("trust_window")
        backend = self.make_backend()
        answer_late(backend, "_renew", backend.ttl * 2)
        lease = self.acquired(name, backend)
        with pytest.raises(LeaseLost):
            backend.renew(lease)

    def test_keep_alive_outlives_the_ttl(self, name: str) -> None:
        self.needs("renewable")
        lease = self.acquired(name, ttl=self.short_ttl)
        with keep_alive(self.backend, lease) as kept:
            wait_until(lambda: self.backend.clock() > lease.trusted_until + lease.ttl * 0.1)
            kept.check()
            assert kept.renewals >= 2
            assert self.backend.acquire(name) is None
        assert self.backend.release(kept.lease) is True

    def test_keep_alive_tells_a_loss_once(self, name: str) -> None:
        self.needs("renewable")
        told: list[LeaseLost] = []
        with keep_alive(self.backend, self.acquired(name, ttl=self.short_ttl), told.append) as kept:
            self.expire(name)
            wait_until(lambda: told, what="on_lost was called")
            assert kept.lost
            with pytest.raises(LeaseLost):
                kept.check()
        assert len(told) == 1
        assert kept.lost

    # doubt

    def test_store_down_is_unavailable_never_none(self, name: str) -> None:
        self.needs("exclusive")
        with self.store_down() as outage:
            backend = outage.backend
            with pytest.raises(LockUnavailable) as caught:
                backend.acquire(name)
            assert (caught.value.name, caught.value.alias) == (name, backend.alias)
            with pytest.raises(LockUnavailable):
                backend.inspect(name)
            with pytest.raises(LockUnavailable):
                backend.list()
            with pytest.raises(LockUnavailable):
                backend.force_release(name, lease_id=uuid.uuid4())
            backend.withdraw(name, lease_id=uuid.uuid4())  # logs, never raises

    def test_store_lost_under_a_lease_is_unavailable_not_lost(self, name: str) -> None:
        self.needs("exclusive")
        self.needs_not("session_bound")
        with self.store_down() as outage:
            backend = outage.backend
            lease = Lease(
                name=name, alias=backend.alias, lease_id=uuid.uuid4(), holder="test", ttl=backend.ttl,
                grant_no=1 if backend.grant_numbers else None, trusted_until=backend.clock() + backend.ttl,
            )  # fmt: skip
            with pytest.raises(LockUnavailable):
                backend.renew(lease)
            with pytest.raises(LockUnavailable):
                backend.release(lease)
            if backend.verifies:
                with pytest.raises(LockUnavailable):
                    backend.verify(lease)

    def test_a_lease_is_lost_with_its_connection(self, name: str) -> None:
        self.needs("session_bound")
        with self.store_down() as outage:
            outage.end()
            lease = self.acquired(name, outage.backend)
            outage.begin()
            with pytest.raises(LeaseLost):
                outage.backend.renew(lease)
            assert outage.backend.release(lease) is False

    def test_a_store_that_is_back_works_at_once(self, name: str) -> None:
        self.needs("exclusive")
        with self.store_down() as outage:
            with pytest.raises(LockUnavailable):
                outage.backend.acquire(name)
            outage.end()
            lease = self.acquired(name, outage.backend)
            assert outage.backend.release(lease) is True

    def test_late_answer_is_no_grant_and_is_given_back(self, name: str) -> None:
        self.needs("trust_window")
        backend = self.make_backend()
        answer_late(backend, "_acquire", backend.ttl * 2)
        with pytest.raises(LockUnavailable):
            backend.acquire(name)
        assert self.backend.inspect(name) is None

    def test_trust_ends_before_the_store_does(self, name: str) -> None:
        self.needs("trust_window")
        self.needs_not("session_bound")
        lease = self.acquired(name)
        shown = self.backend.inspect(name)
        seen_at = self.backend.clock()
        assert shown is not None
        assert shown.expires_in is not None
        assert lease.trusted_until < seen_at + shown.expires_in

    def test_withdraw_gives_back_what_the_id_may_hold(self, name: str) -> None:
        lease_id = uuid.uuid4()
        assert self.backend.acquire(name, lease_id=lease_id) is not None
        self.backend.withdraw(name, lease_id=lease_id)
        self.acquired(name)

    def test_withdraw_leaves_another_holder_alone(self, name: str) -> None:
        self.needs("exclusive")
        self.acquired(name)
        self.backend.withdraw(name, lease_id=uuid.uuid4())
        assert self.backend.acquire(name) is None

    def test_verify_follows_the_latest_grant(self, name: str) -> None:
        lease = self.acquired(name)
        assert self.backend.verify(lease) is True
        self.expire(name)
        self.acquired(name)
        assert self.backend.verify(lease) is (not self.backend.verifies)

    # what is shown

    def test_inspect_shows_the_holder(self, name: str) -> None:
        self.needs("exclusive")
        assert self.backend.inspect(name) is None
        lease = self.acquired(name)
        shown = self.backend.inspect(name)
        assert shown is not None
        assert (shown.name, shown.alias, shown.lease_id) == (name, self.alias, lease.lease_id)
        assert (shown.holder, shown.grant_no) == (lease.holder, lease.grant_no)
        assert (shown.expires_in is None) == self.backend.session_bound
        assert shown.expires_in is None or 0 < shown.expires_in <= lease.ttl
        assert shown.acquired_at is not None
        assert shown.acquired_at.tzinfo is not None
        self.backend.release(lease)
        assert self.backend.inspect(name) is None

    def test_inspect_shows_no_expired_lease(self, name: str) -> None:
        self.acquired(name)
        self.expire(name)
        assert self.backend.inspect(name) is None

    def test_list_shows_names_by_prefix_in_order(self, name: str) -> None:
        self.needs("exclusive")
        leases = [self.acquired(f"{name}{end}") for end in (".b", ".a", "_x")]
        assert [info.name for info in self.backend.list(f"{name}.")] == [f"{name}.a", f"{name}.b"]
        assert {info.name for info in self.backend.list()} >= {lease.name for lease in leases}
        for lease in leases:
            self.backend.release(lease)

    def test_force_release_compares(self, name: str) -> None:
        self.needs("exclusive")
        lease = self.acquired(name)
        assert self.backend.force_release(name, lease_id=uuid.uuid4()) is False
        assert self.backend.acquire(name) is None
        assert self.backend.force_release(name, lease_id=lease.lease_id) is True
        self.acquired(name)

    # what is refused

    def test_odd_names_stay_apart(self, name: str) -> None:
        room = 200 - len(name) - 1
        names = [f"{name}:{odd[:room]}" for odd in ODD_NAMES]
        leases = [self.acquired(odd) for odd in names]
        assert [self.backend.release(lease) for lease in leases] == [True] * len(names)

    @pytest.mark.parametrize("bad", ["", "A", "a b", "a" * 201, "é", "a\n", "a{b}", "a*", "a/b", "a'b"])
    def test_bad_names_are_refused(self, bad: str) -> None:
        with pytest.raises(ValueError, match="Invalid lock name"):
            self.backend.acquire(bad)

    @pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "10", 1e12])
    def test_bad_ttls_are_refused(self, name: str, bad: float) -> None:
        with pytest.raises(ValueError, match="Invalid ttl"):
            self.backend.acquire(name, ttl=bad)

    def test_ttl_below_the_resolution_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="cannot keep a lease below"):
            self.backend.acquire(name, ttl=self.backend.minimum_ttl / 2)

    def test_no_acquire_inside_a_transaction(self, name: str) -> None:
        with transaction.atomic(), pytest.raises(RuntimeError, match=r"inside transaction\.atomic"):
            self.backend.acquire(name)
        assert self.backend.inspect(name) is None

    def test_use_after_close(self, name: str) -> None:
        lease = self.acquired(name)
        self.backend.close()
        assert self.backend.release(lease) is True
