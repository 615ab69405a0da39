from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from locks import LeaseLost, LockUnavailable, lock_backends
from locks.backends import nodes, scripts
from locks.backends.clients import lock_key
from locks.backends.redlock import RedlockBackend
from locks.testing import (
    Outage,
    TcpProxy,
    admit_nodes,
    answer_late,
    exit_status,
    fork_child,
    wait_until,
)
from tests.contract.sharing import SharedRedis
from tests.contract.wires import WIRED, wired_redis

Wired = tuple[RedlockBackend, list[TcpProxy]]


@pytest.mark.django_db
class TestRedlock(SharedRedis):
    alias = "redlock"

    @pytest.fixture(autouse=True)
    def nodes_may_vote(self) -> None:
        admit_nodes(self.backend)

    @property
    def backend(self) -> RedlockBackend:
        return cast("RedlockBackend", lock_backends[self.alias])

    def another(self, **params: Any) -> RedlockBackend:
        made: RedlockBackend = super().another(**params)
        admit_nodes(made)
        return made

    def expire(self, name: str) -> None:
        for node in self.backend.nodes:
            node.client.delete(lock_key(self.backend.prefix, name))

    @contextmanager
    def store_down(self) -> Iterator[Outage]:
        with wired_redis(self.alias) as (backend, proxies):
            backend.inspect("warm-up")
            majority = proxies[: len(proxies) // 2 + 1]
            for proxy in majority:
                proxy.cut()

            def end() -> None:
                for proxy in majority:
                    proxy.heal()

            yield Outage(backend, end)

    @pytest.fixture
    def wired(self) -> Iterator[Wired]:
        with wired_redis(self.alias) as (backend, proxies):
            backend.inspect("warm-up")
            yield cast("RedlockBackend", backend), proxies

    def test_has_five_nodes(self) -> None:
        assert (len(self.backend.nodes), self.backend.quorum) == (5, 3)

    # which nodes answer

    def test_minority_down_is_no_trouble(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        for proxy in proxies[:2]:
            proxy.cut()
        lease = self.acquired(name, backend)
        assert backend.acquire(name) is None
        assert backend.renew(lease).lease_id == lease.lease_id
        shown = backend.inspect(name)
        assert shown is not None
        assert shown.lease_id == lease.lease_id
        assert [info.name for info in backend.list(name)] == [name]
        assert backend.release(lease) is True

    def test_minority_up_is_unavailable_and_rolled_back(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        for proxy in proxies[:3]:
            proxy.cut()
        with pytest.raises(LockUnavailable, match="only 2 of 5 nodes voted"):
            backend.acquire(name)
        assert self.votes(name) == []

    def test_partial_grant_is_rolled_back_on_silent_nodes_too(self, name: str, wired: Wired) -> None:
        """Three nodes carry the vote out and their answers are lost: the roll-back reaches them later."""
        backend, proxies = wired
        self.acquired(f"{name}.warm-up", backend)
        for proxy in proxies[:3]:
            proxy.swallow_answers()
        with pytest.raises(LockUnavailable, match="only 2 of 5"):
            backend.acquire(name, lease_id=uuid.uuid4())  # an id of ours: the backend withdraws nothing by itself
        for proxy in proxies:
            proxy.heal()
        wait_until(lambda: self.votes(name) == [], within=backend.ttl / 2, what="all votes were taken back")
        self.acquired(name)

    def test_silent_minority_does_not_stretch_the_trust_window(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        for proxy in proxies[:2]:
            proxy.swallow_answers()
        lease = self.acquired(name, backend)
        seen_at = backend.clock()
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.expires_in is not None
        assert lease.trusted_until < seen_at + shown.expires_in

    def test_votes_after_the_trust_window_are_rolled_back_everywhere(self, name: str) -> None:
        backend = self.make_backend()
        answer_late(backend, "_vote", backend.ttl * 2)
        with pytest.raises(LockUnavailable, match="after the trust window"):
            backend.acquire(name)
        assert self.votes(name) == []

    def test_all_nodes_are_asked_at_once(self, name: str, wired: Wired) -> None:
        """No node answers before each was asked: asked in turn, the first would hold up the rest."""
        backend, proxies = wired
        patient = RedlockBackend(WIRED, {**backend.params, "OPTIONS": {"NODE_TIMEOUT": 5}})
        patient.inspect("warm-up")
        before = [proxy.requests for proxy in proxies]
        for proxy in proxies:
            proxy.hold_answers()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(patient.acquire, name)
            try:
                wait_until(
                    lambda: all(proxy.requests > seen for proxy, seen in zip(proxies, before, strict=True)),
                    within=4,
                    what="every node was asked",
                )
            finally:
                for proxy in proxies:
                    proxy.heal()
            assert asked.result() is not None

    def test_an_answer_that_comes_late_is_never_read_by_a_later_question(self, name: str, wired: Wired) -> None:
        """Each node holds the answer to one question back until it has been asked another one."""
        backend, proxies = wired
        patient = RedlockBackend(WIRED, {**backend.params, "OPTIONS": {"NODE_TIMEOUT": 1}})
        lease = self.acquired(name, patient)
        for proxy in proxies:
            proxy.hold_answers()
        with pytest.raises(LockUnavailable):
            patient.renew(lease)  # each node answers 1, unheard
        before = [proxy.requests for proxy in proxies]
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(patient.inspect, name)
            wait_until(
                lambda: all(p.requests > n for p, n in zip(proxies, before, strict=True)), what="all are asked"
            )
            for proxy in proxies:
                proxy.heal()
            shown = asked.result()
        assert shown is not None
        assert shown.lease_id == lease.lease_id
        assert patient.inspect(f"{name}.other") is None

    def test_silent_nodes_cost_one_time_out_together(self, name: str, wired: Wired) -> None:
        """Two nodes hang with a wire open, which is the bound that ``longest_exchange`` tells."""
        backend, proxies = wired
        patient = RedlockBackend(WIRED, {**backend.params, "OPTIONS": {"NODE_TIMEOUT": 2}})
        self.acquired(f"{name}.warm-up", patient)
        for proxy in proxies[:2]:
            proxy.swallow_answers()
        asked_at = patient.clock()
        self.acquired(name, patient)
        assert patient.longest_exchange is not None
        assert patient.timeout <= patient.clock() - asked_at < patient.longest_exchange

    def test_wires_are_kept_and_many_threads_share_none(self, name: str) -> None:
        patient = self.another(OPTIONS={"NODE_TIMEOUT": 30})  # so many threads wait for each other on a busy machine

        def use(number: int) -> bool:
            lease = patient.acquire(f"{name}.{number}")
            assert lease is not None
            shown = patient.inspect(f"{name}.{number}")
            assert shown is not None
            assert shown.lease_id == lease.lease_id
            return patient.release(lease)

        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(use, range(200)))
        opened = [node.client.info("stats")["total_connections_received"] for node in patient.nodes]
        assert all(use(number) for number in range(20))
        again = [node.client.info("stats")["total_connections_received"] for node in patient.nodes]
        assert again == opened

    def test_a_forked_child_asks_over_wires_of_its_own(self, name: str) -> None:
        lease = self.acquired(name)
        mine = self.wire_numbers()

        def ask() -> None:
            assert not set(mine) & set(self.wire_numbers())
            own = self.acquired(f"{name}.child")
            assert self.backend.acquire(name) is None
            assert self.backend.release(own) is True

        assert exit_status(fork_child(ask)) == 0
        assert self.wire_numbers() == mine
        assert self.backend.release(lease) is True

    def wire_numbers(self) -> list[tuple[str, int]]:
        """How each node calls the wire that it is asked over."""
        return [(node.url, node.line.exchange(["CLIENT", "ID"])) for node in self.backend.nodes]

    def test_a_node_that_restarted_is_asked_over_a_new_wire(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        self.acquired(f"{name}.warm-up", backend)
        for proxy in proxies:
            proxy.cut()
            proxy.heal()
        self.acquired(name, backend)

    def test_release_reaches_a_node_that_was_silent(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        lease = self.acquired(name, backend, ttl=backend.ttl)
        proxies[0].cut()
        assert backend.release(lease) is True
        assert len(self.votes(name)) == 1
        proxies[0].heal()
        wait_until(lambda: self.votes(name) == [], within=backend.ttl / 2, what="the silent node was told again")

    @pytest.fixture
    def nothing_owed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What other tests have left unpaid is not counted."""
        monkeypatch.setattr(nodes._process, "_debts", None)

    @pytest.mark.usefixtures("nothing_owed")
    def test_a_dead_node_is_told_seldom_and_what_it_was_owed_ends(self, name: str) -> None:
        with wired_redis(self.alias) as (wired, proxies):
            short = RedlockBackend(WIRED, {**wired.params, "TTL": 6, "OPTIONS": {"NODE_TIMEOUT": 0.25}})
            count = 30
            leases = [self.acquired(f"{name}.{number}", short) for number in range(count)]
            proxies[0].cut()
            before = proxies[0].dropped
            for lease in leases:
                assert short.release(lease) is True
            owed = nodes._process.debts()
            assert len(owed.heap) <= count
            wait_until(lambda: not owed.heap, within=20, what="nothing that has ended by itself is owed")
            assert proxies[0].dropped - before - count <= 10, "asked once for each release, and a few times later"

    @pytest.mark.usefixtures("nothing_owed")
    def test_what_is_owed_is_bounded(self, name: str, wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nodes, "_MOST_OWED", 5)
        backend, proxies = wired
        leases = [self.acquired(f"{name}.{number}", backend) for number in range(10)]
        proxies[0].cut()
        for lease in leases:
            assert backend.release(lease) is True
        assert len(nodes._process.debts().heap) <= 5

    # who holds it

    def test_split_votes_are_unavailable_never_none(self, name: str) -> None:
        self.votes_for(name, [uuid.uuid4()] * 2 + [uuid.uuid4()] * 2)
        with pytest.raises(LockUnavailable, match="no majority: 1 of 5"):
            self.backend.acquire(name)
        assert len(self.votes(name)) == 4

    def test_majority_of_another_is_known_even_if_the_rest_is_silent(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        self.votes_for(name, [uuid.uuid4()] * 3)
        for proxy in proxies[3:]:
            proxy.cut()
        assert backend.acquire(name) is None

    def test_possible_majority_of_another_is_not_known(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        self.votes_for(name, [uuid.uuid4()] * 3)
        proxies[0].cut()
        with pytest.raises(LockUnavailable):
            backend.acquire(name)
        with pytest.raises(LockUnavailable):
            backend.inspect(name)

    def test_renewal_needs_a_majority_and_tells_silence_from_loss(self, name: str, wired: Wired) -> None:
        backend, proxies = wired
        lease = self.acquired(name, backend)
        for proxy in proxies[:3]:
            proxy.cut()
        with pytest.raises(LockUnavailable):
            backend.renew(lease)
        for proxy in proxies:
            proxy.heal()
        assert backend.renew(lease).lease_id == lease.lease_id
        for node in self.backend.nodes[:3]:
            node.client.delete(lock_key(backend.prefix, name))
        with pytest.raises(LeaseLost):
            backend.renew(lease)

    def test_forgotten_votes_are_not_brought_back_by_a_renewal(self, name: str) -> None:
        lease = self.acquired(name)
        self.backend.nodes[0].client.delete(lock_key(self.backend.prefix, name))
        self.backend.renew(lease)
        assert len(self.votes(name)) == 4

    def test_late_roll_back_of_an_earlier_round_leaves_the_later_one_alone(self, name: str) -> None:
        lease = self.acquired(name)
        key = lock_key(self.backend.prefix, name)
        earlier = f"{lease.lease_id}:{uuid.uuid4().hex[:8]}"

        nodes.ask_all(self.backend.nodes, scripts.RELEASE, [key], [earlier])
        assert len(self.votes(name)) == 5

    # quarantine

    def test_fresh_node_may_not_vote_before_its_quarantine_is_over(self, name: str) -> None:
        self.forget_markers(3)
        with pytest.raises(LockUnavailable, match="in quarantine for"):
            self.backend.acquire(name)
        assert 0 < self.backend.prepare() <= self.backend.quarantine

    def test_foreign_run_id_trips_the_quarantine(self, name: str) -> None:
        for node in self.backend.nodes[:3]:
            node.client.set(self.backend.marker, f"{'0' * 40}:0:0")
        with pytest.raises(LockUnavailable, match="in quarantine for"):
            self.backend.acquire(name)

    def test_one_forgetful_node_makes_no_second_holder(self, name: str, wired: Wired) -> None:
        """A has the votes of nodes 1 to 3; node 3 restarts empty. B gets 4 and 5, and must not get 3."""
        backend, proxies = wired
        for proxy in proxies[3:]:
            proxy.cut()
        lease = self.acquired(name, backend)
        third = self.backend.nodes[2].client
        third.delete(lock_key(backend.prefix, name), backend.marker)
        with pytest.raises(LockUnavailable):
            self.backend.acquire(name)
        proxies[3].heal()
        assert self.votes(name) == [str(lease.lease_id)] * 2

    def test_quarantine_ends_after_its_time(self, name: str) -> None:
        backend = type(self.backend)(
            self.alias, {**self.backend.params, "TTL": 0.5, "OPTIONS": {"NODE_TIMEOUT": 0.25}}
        )
        self.forget_markers(5)
        assert 0 < backend.prepare() <= 0.56
        wait_until(lambda: backend.prepare() == 0)
        self.acquired(name, backend)

    def test_an_alias_of_short_leases_does_not_end_the_quarantine_of_long_ones(self, name: str) -> None:
        """A node may have forgotten a long lease, and is asked first by an alias whose leases are short."""
        brief, patient = (
            type(self.backend)(self.alias, {**self.backend.params, "TTL": ttl, "OPTIONS": {"NODE_TIMEOUT": 0.25}})
            for ttl in (0.5, 60)
        )
        self.forget_markers(5)
        wait_until(lambda: brief.prepare() == 0)
        self.acquired(name, brief)
        assert 50 < patient.prepare() <= patient.quarantine
        with pytest.raises(LockUnavailable, match="in quarantine for"):
            patient.acquire(name)
        assert brief.prepare() == 0

    def test_a_clock_that_is_set_back_does_not_start_the_quarantine_again(self, name: str) -> None:
        self.acquired(name)
        for node in self.backend.nodes:
            run_id, _, sat = node.client.get(self.backend.marker).decode().split(":")
            tomorrow = int((time.time() + 86_400) * 1000)
            node.client.set(self.backend.marker, f"{run_id}:{tomorrow}:{sat}")
        assert self.backend.prepare() == 0

    def test_prepare_without_a_majority_is_unavailable(self, wired: Wired) -> None:
        backend, proxies = wired
        for proxy in proxies[:3]:
            proxy.cut()
        with pytest.raises(LockUnavailable):
            backend.prepare()

    def test_ttl_beyond_the_quarantine_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="at most"):
            self.backend.acquire(name, ttl=self.backend.ttl + 1)
        params = {**self.backend.params, "OPTIONS": {"QUARANTINE": 60}}
        assert type(self.backend)(self.alias, params).clean_ttl(59) == 59

    # help

    def votes(self, name: str) -> list[str]:
        """The lease ids that the nodes hold for ``name``, asked of the nodes themselves."""
        values = [node.client.get(lock_key(self.backend.prefix, name)) for node in self.backend.nodes]
        return [value[:36].decode() for value in values if value]

    def votes_for(self, name: str, ids: list[uuid.UUID]) -> None:
        for node, lease_id in zip(self.backend.nodes, ids, strict=False):
            node.client.set(lock_key(self.backend.prefix, name), f"{lease_id}:00000000:0:test", px=60_000)

    def forget_markers(self, count: int) -> None:
        for node in self.backend.nodes[:count]:
            node.client.delete(self.backend.marker)
