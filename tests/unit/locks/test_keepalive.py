from __future__ import annotations

import contextlib
import math
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import cast

import pytest

from locks import Lease, LeaseLost, LockUnavailable, connection, keepalive, lock_backends
from locks.backends.base import BaseLockBackend
from locks.backends.redis import RedisLockBackend
from locks.keepalive import Kept, keep_alive
from locks.signals import lease_lost
from locks.testing import FrozenClock, TcpProxy, exit_status, fork_child, wait_until
from tests.contract.wires import WIRED, wired_database, wired_redis, wired_row_backend
from tests.support.threads import no_thread_once

pytestmark = pytest.mark.django_db

Wired = tuple[RedisLockBackend, TcpProxy]


@pytest.fixture
def wired() -> Iterator[Wired]:
    """The redis backend over a wire of its own, under an alias of its own."""
    with wired_redis("redis") as (backend, (proxy,)):
        yield cast("RedisLockBackend", backend), proxy


def acquired(backend: BaseLockBackend, ttl: float) -> Lease:
    lease = backend.acquire(f"keep.{uuid.uuid4().hex}", ttl=ttl)
    assert lease is not None
    return lease


def hurry(*held: Kept) -> None:
    """Let the leases be due for renewal now, half a second later at most, and not after a third of their ttl."""
    for kept in held:
        kept.next_renewal = kept.backend.clock()


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_silence_is_asked_again_until_the_store_is_back(wired: Wired) -> None:
    backend, proxy = wired
    told: list[LeaseLost] = []
    with keep_alive(backend, acquired(backend, ttl=12), told.append) as kept:
        proxy.cut()
        kept.next_renewal = due = backend.clock()
        wait_until(lambda: kept.next_renewal > due, what="a renewal found the store silent")
        proxy.heal()
        wait_until(lambda: kept.renewals >= 1, what="a later renewal reached the store")
        kept.check()
    assert told == []
    assert not kept.lost
    assert backend.release(kept.lease) is True


def test_a_store_that_stays_silent_ends_the_lease_with_its_window(wired: Wired) -> None:
    backend, proxy = wired
    told: list[LeaseLost] = []
    with keep_alive(backend, acquired(backend, ttl=0.6), told.append) as kept:
        proxy.cut()
        wait_until(lambda: told, what="the loss was told")
        assert backend.clock() >= kept.lease.trusted_until
        with pytest.raises(LeaseLost, match="trust window is over"):
            kept.check()
    assert len(told) == 1


def test_the_loss_is_told_while_a_renewal_still_hangs(wired: Wired) -> None:
    """The thread that watches asks no store: one that never answers cannot hold it up."""
    backend, proxy = wired
    params = {**backend.params, "OPTIONS": {"SOCKET_TIMEOUT": 5}}
    slow = RedisLockBackend(WIRED, params)
    told: list[bool] = []
    lease = acquired(slow, ttl=3)
    with keep_alive(slow, lease, lambda error: told.append(kept.renewing.locked())) as kept:
        proxy.swallow_answers()
        hurry(kept)
        wait_until(lambda: told, what="the loss was told")
        proxy.cut()  # lets the hanging renewal end
    assert told == [True]


def test_not_ours_any_more_is_final_at_once(wired: Wired) -> None:
    backend, _ = wired
    told: list[LeaseLost] = []
    with keep_alive(backend, acquired(backend, ttl=30), told.append) as kept:
        lose(kept, "renewing")
        wait_until(lambda: told)
        assert backend.clock() < kept.lease.trusted_until
        assert kept.lost
        with pytest.raises(LeaseLost, match="no longer shows it as ours"):
            kept.check()


def test_a_lost_lease_keeps_no_thread_busy(wired: Wired) -> None:
    """The renewing thread sleeps while the body of a lost lease goes on; it used to take a whole core."""
    backend, _ = wired
    with keep_alive(backend, acquired(backend, ttl=30)) as kept:
        backend.force_release(kept.lease.name, lease_id=kept.lease.lease_id)
        kept.renew()
        assert kept.lost
        kept.next_renewal = backend.clock()  # as after a renewal on time
        wait_until(lambda: kept.next_renewal > backend.clock(), what="it is due no more")


def test_a_lease_without_a_trust_window_is_renewed_as_well() -> None:
    """Its end is no instant that a renewal could be counted from."""
    backend = lock_backends["database"]
    lease = replace(acquired(backend, ttl=30), trusted_until=math.inf)
    assert Kept(backend, lease).next_renewal <= backend.clock() + 10


def test_a_suspended_machine_finds_its_lease_lost(wired: Wired) -> None:
    backend, _ = wired
    told: list[LeaseLost] = []
    clock = FrozenClock()
    backend.clock = clock
    with keep_alive(backend, acquired(backend, ttl=30), told.append) as kept:
        assert not kept.lost
        kept.check()
        clock.advance(30)
        assert kept.lost
        with pytest.raises(LeaseLost):
            kept.check()
        wait_until(lambda: told)
    assert len(told) == 1


def test_one_renewing_thread_per_alias_serves_all_leases(wired: Wired) -> None:
    backend, _ = wired
    with (
        keep_alive(backend, acquired(backend, ttl=30)) as first,
        keep_alive(backend, acquired(backend, ttl=30)) as second,
        keep_alive(backend, acquired(backend, ttl=300)) as third,
    ):
        hurry(first, second)
        wait_until(lambda: first.renewals and second.renewals)
        assert len(threads(f"aegis-renew-{WIRED}")) == 1
        assert len(threads("aegis-watch")) == 1
        assert third.renewals == 0


@pytest.mark.parametrize("other", ["redis", "database"])
def test_a_store_that_hangs_holds_up_no_renewal_at_another(other: str, wired: Wired) -> None:
    """It takes a renewal and does not answer, and is waited for longer than the other lease may wait for its own."""
    backend, proxy = wired
    slow = RedisLockBackend(WIRED, {**backend.params, "OPTIONS": {"SOCKET_TIMEOUT": 60}})
    quick = lock_backends[other]
    with (
        keep_alive(slow, acquired(slow, ttl=300)) as hanging,
        keep_alive(quick, acquired(quick, ttl=300)) as healthy,
    ):
        try:
            proxy.swallow_answers()
            hurry(hanging)
            wait_until(lambda: proxy.dropped, what="the answer to a renewal is lost")
            before = healthy.renewals
            hurry(healthy)
            wait_until(lambda: healthy.renewals > before, within=30, what="the lease at the other store is renewed")
            assert hanging.renewing.locked() and hanging.renewals == 0
        finally:
            proxy.cut()  # lets the hanging renewal end
    quick.release(healthy.lease)


def test_nothing_is_renewed_after_leaving(wired: Wired) -> None:
    backend, proxy = wired
    with keep_alive(backend, acquired(backend, ttl=2)) as kept:
        hurry(kept)
        wait_until(lambda: kept.renewals)
    count, sent = kept.renewals, proxy.requests
    wait_until(lambda: backend.clock() > kept.lease.trusted_until)
    assert (kept.renewals, proxy.requests) == (count, sent)
    assert not kept.lost, "what was not lost when its keep-alive ended is not lost later"


def test_a_failing_on_lost_is_logged_and_harms_no_other_lease(wired: Wired, caplog: pytest.LogCaptureFixture) -> None:
    backend, _ = wired

    def fail(error: LeaseLost) -> None:
        raise RuntimeError("observer")

    with (
        keep_alive(backend, acquired(backend, ttl=30)) as healthy,
        keep_alive(backend, acquired(backend, ttl=30), fail) as unlucky,
    ):
        lose(unlucky, "renewing")
        wait_until(lambda: unlucky.lost)
        hurry(healthy)
        wait_until(lambda: healthy.renewals)
        assert not healthy.lost
    wait_until(lambda: any("on_lost failed" in record.message for record in caplog.records))


def test_the_loss_is_sent_as_a_signal(wired: Wired) -> None:
    backend, _ = wired
    seen: list[str] = []

    def observe(*, name: str, alias: str, error: LeaseLost, **kwargs: object) -> None:
        seen.append(f"{alias} {name}")
        raise RuntimeError("an observer never changes an outcome")

    lease_lost.connect(observe)
    try:
        with keep_alive(backend, acquired(backend, ttl=30)) as kept:
            lose(kept, "renewing")
            wait_until(lambda: seen)
            assert kept.lost
    finally:
        lease_lost.disconnect(observe)
    assert seen == [f"{WIRED} {kept.lease.name}"]


@pytest.mark.parametrize("how", ["renewing", "watching"])
@pytest.mark.parametrize("who", ["observer", "on_lost"])
def test_whoever_is_told_of_a_loss_may_take_its_time(wired: Wired, who: str, how: str) -> None:
    """One that hangs keeps no other lease from being renewed or watched, and no observer comes before ``on_lost``."""
    backend, _ = wired
    hanging, ended = threading.Event(), threading.Event()
    told: list[LeaseLost] = []

    def hang(*args: object, **kwargs: object) -> None:
        hanging.set()
        ended.wait(60)

    if who == "observer":
        lease_lost.connect(hang)
    try:
        with (
            keep_alive(backend, acquired(backend, ttl=30), told.append if who == "observer" else hang) as unlucky,
            keep_alive(backend, acquired(backend, ttl=30)) as healthy,
            keep_alive(backend, acquired(backend, ttl=30), told.append) as second,
        ):
            lose(unlucky, how)
            wait_until(hanging.is_set, what="the first who is told hangs")
            assert len(told) == (1 if who == "observer" else 0)
            before = healthy.renewals
            hurry(healthy)
            wait_until(lambda: healthy.renewals > before, what="another lease is renewed meanwhile")
            lose(second, how)
            wait_until(lambda: second.lease.name in [error.name for error in told], what="another loss is told")
            assert not ended.is_set()
    finally:
        ended.set()
        lease_lost.disconnect(hang)


def lose(kept: Kept, how: str) -> None:
    """Let the renewing or the watching thread find out that the lease is lost."""
    if how == "renewing":
        kept.backend.force_release(kept.lease.name, lease_id=kept.lease.lease_id)
        hurry(kept)
        return
    with kept.renewing:  # or a renewal on its way would prolong it
        kept._lease = replace(kept.lease, trusted_until=kept.backend.clock())
        wait_until(lambda: kept._error, what="the watching thread saw it")


@pytest.mark.parametrize("alias", ["none", "optimistic"])
def test_without_a_trust_window_nothing_is_watched(alias: str) -> None:
    backend = lock_backends[alias]
    with keep_alive(backend, acquired(backend, ttl=1)) as kept:
        assert threads(f"aegis-renew-{alias}") == []
        assert not kept.lost
        kept.check()
    backend.release(kept.lease)


def test_a_forked_child_keeps_its_own_lease_alive(wired: Wired) -> None:
    backend, _ = wired
    with keep_alive(backend, acquired(backend, ttl=30)) as kept:
        hurry(kept)
        wait_until(lambda: kept.renewals)

        def keep_own() -> None:
            own = lock_backends["redis"]
            with keep_alive(own, acquired(own, ttl=30)) as theirs:
                hurry(theirs)
                wait_until(lambda: theirs.renewals >= 1)

        assert exit_status(fork_child(keep_own)) == 0
        seen = kept.renewals
        hurry(kept)
        wait_until(lambda: kept.renewals > seen, what="the parent goes on renewing")


@pytest.mark.parametrize("thread", ["aegis-renew-redis", "aegis-watch"])
def test_a_thread_that_could_not_be_started_is_started_for_the_next_lease(thread: str) -> None:
    def keep() -> None:
        backend = lock_backends["redis"]
        with (
            no_thread_once(thread),
            pytest.raises(RuntimeError, match="start new thread"),
            keep_alive(backend, acquired(backend, ttl=1)),
        ):
            pass
        with keep_alive(backend, acquired(backend, ttl=30)) as kept:
            hurry(kept)
            wait_until(lambda: kept.renewals, what="the lease is renewed")
            lose(kept, "watching")
        assert not keepalive._process.watcher.items
        assert not keepalive._process.renewer("redis").items

    assert exit_status(fork_child(keep)) == 0


@pytest.mark.parametrize("alias", ["database", "advisory", "row_lock"])
def test_a_long_lease_at_a_silent_server_holds_up_no_short_one(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with wired_database() as proxy:
        backend = wired_row_backend(alias)
        leases = acquired(backend, ttl=3600), acquired(backend, ttl=12)
        with keep_alive(backend, leases[0]) as long, keep_alive(backend, leases[1]) as short:
            hurry(long)
            wait_until(lambda: long.renewals, what="the thread is connected")
            try:
                with monkeypatch.context() as patched:
                    patched.setattr(connection, "ANSWER_TIMEOUT", 0.5)
                    proxy.swallow_answers()
                    hurry(long)
                    wait_until(lambda: proxy.dropped, what="the answer to the long one's renewal is lost")
                proxy.heal()
                before = short.renewals
                hurry(short)
                wait_until(lambda: short.renewals > before or short.lost)
                assert not short.lost
            finally:
                proxy.cut()  # ends what still hangs
        for lease in leases:
            with contextlib.suppress(LockUnavailable):
                backend.release(lease)


def test_the_end_of_a_long_lease_waits_for_a_hanging_renewal_no_longer_than_for_any_answer(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT", 0.1)
    backend, _ = wired
    kept = Kept(backend, acquired(backend, ttl=3600))
    with ThreadPoolExecutor(1) as pool, kept.renewing:
        left = pool.submit(kept.stop)
        wait([left], timeout=10)
        assert left.done()
