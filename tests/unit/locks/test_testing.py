"""The tools that are shipped for tests."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

import pytest

from locks import LockNotAcquired, exclusive, lock_backends
from locks.models import LeaseRecord
from locks.testing import (
    FrozenClock,
    TcpProxy,
    count_lost_updates,
    count_overlaps,
    leases_in_test_transaction,
    wait_until,
)

__all__ = ["leases_in_test_transaction"]  # a fixture, for the tests below


@pytest.mark.usefixtures("leases_in_test_transaction")
class TestLeasesInTheTestsTransaction:
    def test_code_under_test_takes_leases_among_the_tests_rows(self) -> None:
        LeaseRecord.objects.create(name="routed")
        with exclusive("routed", using="database"):
            assert LeaseRecord.objects.get(name="routed").lease_id is not None
            with pytest.raises(LockNotAcquired), exclusive("routed", using="database"):
                pytest.fail("entered twice")
        assert LeaseRecord.objects.get(name="routed").lease_id is None

    def test_nothing_of_it_is_committed(self) -> None:
        assert not LeaseRecord.objects.filter(name="routed").exists()
        with exclusive("routed", using="optimistic"):
            pass

    @pytest.mark.parametrize("alias", ["advisory", "row_lock"])
    def test_a_lock_that_is_a_session_keeps_out_of_the_tests_transaction(self, alias: str) -> None:
        name = f"routed.{uuid.uuid4().hex}"
        with exclusive(name, using=alias):
            assert lock_backends[alias].inspect(name) is not None
            with pytest.raises(LockNotAcquired), exclusive(name, using=alias):
                pytest.fail("entered twice")
        assert lock_backends[alias].inspect(name) is None

    def test_no_renewal_is_sent(self) -> None:
        assert lock_backends["database"].renews_in_background is False
        assert lock_backends["redis"].renews_in_background is True


@pytest.mark.django_db
def test_without_a_lock_the_harness_sees_collisions(tmp_path: Path) -> None:
    """A harness that found nothing with no lock would prove nothing with one."""
    name = f"testing.{uuid.uuid4().hex}"
    threads = count_lost_updates(lambda: lock_backends["none"], name)
    processes = count_overlaps(lock_backends["none"], name, tmp_path)
    assert (threads.errors, processes.errors) == ([], [])
    assert threads.violations > 0
    assert processes.violations > 0


def test_the_frozen_clock_moves_only_when_told() -> None:
    clock = FrozenClock()
    first = clock()
    assert clock() == first
    clock.advance(2.5)
    assert clock() == first + 2.5


def test_waiting_has_a_bound() -> None:
    assert wait_until(lambda: 3) == 3
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: the moon"):
        wait_until(lambda: False, within=0.02, what="the moon")


class TestTcpProxy:
    @pytest.fixture
    def upstream(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def test_forwards_both_ways_and_can_be_cut_and_healed(self, upstream: socket.socket) -> None:
        with upstream, TcpProxy(upstream.getsockname()) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                server, _ = upstream.accept()
                with server:
                    client.sendall(b"ping")
                    assert server.recv(10) == b"ping"
                    server.sendall(b"pong")
                    assert client.recv(10) == b"pong"
                    proxy.cut()
                    assert client.recv(10) == b""
            proxy.heal()
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                server, _ = upstream.accept()
                server.close()
                assert client.recv(10) == b""

    def test_a_swallowed_answer_had_its_request_carried_out(self, upstream: socket.socket) -> None:
        with upstream, TcpProxy(upstream.getsockname()) as proxy:
            proxy.swallow_answers()
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                server, _ = upstream.accept()
                with server:
                    client.sendall(b"ping")
                    assert server.recv(10) == b"ping"
                    server.sendall(b"pong")
                    client.settimeout(0.1)
                    with pytest.raises(TimeoutError):
                        client.recv(10)

    def test_an_answer_that_is_held_back_is_counted_and_delivered_late(self, upstream: socket.socket) -> None:
        address = upstream.getsockname()
        with upstream, TcpProxy(address) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
            server, _ = upstream.accept()
            with server:
                proxy.hold_answers()
                server.sendall(b"pong")
                wait_until(lambda: proxy.held, within=5, what="the answer has come as far as the proxy")
                proxy.heal()
                client.settimeout(5)
                assert client.recv(10) == b"pong"

    def test_after_the_fault_only_what_has_lost_something_is_ended(self, upstream: socket.socket) -> None:
        address = upstream.getsockname()
        with upstream, TcpProxy(address) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as unharmed:
            server, _ = upstream.accept()
            with server, socket.create_connection(("127.0.0.1", proxy.port)) as waiting:
                proxy.lose_all()
                waiting.sendall(b"ping")
                wait_until(lambda: proxy.dropped, within=5, what="the request is lost")
                proxy.heal()
                proxy.end_broken()
                waiting.settimeout(5)
                assert waiting.recv(10) == b""
                unharmed.sendall(b"ping")
                assert server.recv(10) == b"ping"
