"""What must hold where a session serves one lease after the other."""

from __future__ import annotations

import os
import signal
import uuid

import psycopg
import pytest

from locks import LockUnavailable, connection
from locks.backends import session_registry
from locks.backends.session_registry import Key
from locks.backends.sessions import DOOR, Session
from locks.backends.sessions_backend import SessionBackend
from locks.testing import exit_status, fork_child, wait_until
from tests.support.threads import no_thread_once


class RestingSessions:
    """Mixed into the contract of a strategy whose lease is a session."""

    backend: SessionBackend

    @pytest.fixture(autouse=True)
    def nothing_rests(self) -> None:
        session_registry.close_resting()

    def session_of(self, name: str, lease_id: uuid.UUID) -> Session:
        session = session_registry.find(Key(self.backend.kind, self.backend.using, name, lease_id))
        assert session is not None
        return session

    def served(self, name: str) -> Session:
        """The session of a lease that was taken and given back."""
        lease = self.acquired(name)  # type: ignore[attr-defined]
        session = self.session_of(name, lease.lease_id)
        assert self.backend.release(lease) is True
        return session

    def test_a_session_serves_the_next_lease_and_never_two_at_once(self, name: str) -> None:
        first = self.served(name)
        lease = self.acquired(f"{name}.2")  # type: ignore[attr-defined]
        other = self.acquired(f"{name}.3")  # type: ignore[attr-defined]
        assert self.session_of(f"{name}.2", lease.lease_id) is first
        assert self.session_of(f"{name}.3", other.lease_id) is not first
        for held in (lease, other):
            assert self.backend.acquire(held.name) is None
            assert self.backend.release(held) is True

    def test_a_refused_session_is_used_again(self, name: str) -> None:
        self.acquired(name)  # type: ignore[attr-defined]
        assert self.backend.acquire(name) is None
        assert session_registry.resting_sessions() == 1
        assert self.backend.acquire(name) is None
        assert session_registry.resting_sessions() == 1

    def test_a_session_at_rest_holds_nothing_whatever_was_done_on_it(self, name: str) -> None:
        lease = self.acquired(name)  # type: ignore[attr-defined]
        session = self.session_of(name, lease.lease_id)
        session.connection.execute("SELECT pg_advisory_lock(42), pg_advisory_lock(42)")
        self.backend.release(lease)
        held = connection.execute(
            "SELECT locktype FROM pg_locks WHERE pid = %(pid)s AND locktype <> 'virtualxid'", {"pid": session.pid}
        )
        assert held == [] or session.connection.closed

    def test_another_ttl_is_another_session(self, name: str) -> None:
        """The server was told for how long it bears with silence; what a renewal said lasts as long as its lease."""
        session = self.served(name)
        lease = self.acquired(name, ttl=60)  # type: ignore[attr-defined]
        longer = self.session_of(name, lease.lease_id)
        assert longer is not session
        self.backend.renew(lease, ttl=90)
        self.backend.release(lease)
        assert longer.connection.closed

    def test_a_session_that_ended_at_rest_is_replaced_unnoticed(self, name: str) -> None:
        session = self.served(name)
        connection.execute("SELECT pg_terminate_backend(%(pid)s, 5000)", {"pid": session.pid})
        lease = self.acquired(name)  # type: ignore[attr-defined]
        assert self.session_of(name, lease.lease_id) is not session

    def test_an_old_session_serves_no_more(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        session = self.served(name)
        monkeypatch.setattr(session_registry, "OLDEST", 0.0)
        lease = self.acquired(name)  # type: ignore[attr-defined]
        assert self.session_of(name, lease.lease_id) is not session
        assert session.connection.closed

    def test_few_sessions_rest_and_none_for_long(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        names = [f"{name}.{number}" for number in range(session_registry.MOST_AT_REST + 3)]
        for lease in [self.acquired(one) for one in names]:  # type: ignore[attr-defined]
            self.backend.release(lease)
        assert session_registry.resting_sessions() == session_registry.MOST_AT_REST
        monkeypatch.setattr(session_registry, "REST", 0.1)
        wait_until(
            lambda: session_registry.resting_sessions() == 0, within=10, what="all sessions at rest are closed"
        )

    def test_sessions_at_rest_are_closed_though_no_thread_was_to_be_had_at_first(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session_registry, "REST", 0.1)

        def rest() -> None:
            with no_thread_once("aegis-sessions"):
                self.served(name)
            self.served(name)
            wait_until(lambda: session_registry.resting_sessions() == 0, what="the session at rest is closed")

        assert exit_status(fork_child(rest)) == 0

    def test_close_closes_what_rests_and_leaves_leases_alone(self, name: str) -> None:
        session = self.served(f"{name}.before")
        lease = self.acquired(name)  # type: ignore[attr-defined]
        self.served(f"{name}.beside")
        self.backend.close()
        assert session_registry.resting_sessions() == 0
        assert self.session_of(name, lease.lease_id) is session
        assert self.backend.release(lease) is True

    def test_a_forked_child_leaves_its_parents_resting_sessions_alone(self, name: str) -> None:
        session = self.served(name)

        def use() -> None:
            assert session_registry.resting_sessions() == 0
            self.served(name)

        assert exit_status(fork_child(use)) == 0
        lease = self.acquired(name)  # type: ignore[attr-defined]
        assert self.session_of(name, lease.lease_id) is session

    def test_a_forked_child_keeps_no_resting_session_of_its_parent_open(self, name: str) -> None:
        """The parent dies without a word; the child's copy of the socket must not speak for it."""
        reading, writing = os.pipe()

        def rest_and_fork() -> None:
            session = self.served(name)
            os.write(writing, b"%d %d\n" % (session.pid, fork_child(signal.pause)))
            signal.pause()

        child = fork_child(rest_and_fork)
        pid, grandchild = map(int, os.read(reading, 40).split())
        os.kill(child, signal.SIGKILL)
        exit_status(child)
        try:
            alive = "SELECT FROM pg_stat_activity WHERE pid = %(pid)s"
            wait_until(lambda: not connection.execute(alive, {"pid": pid}), what="the session has ended")
        finally:
            os.kill(grandchild, signal.SIGKILL)
            os.close(reading)
            os.close(writing)

    def test_a_session_that_is_being_ended_takes_no_other_lease(self, name: str) -> None:
        """Force release looks at the name of a session, then ends it. In between, that name must not change:

        operator: "lease X is held by process P"  ->  P gives X back, serves Y  ->  operator ends P, and Y with it.
        """
        session = self.served(name)
        with psycopg.connect(**_params(), autocommit=True) as operator:
            operator.execute("SELECT pg_advisory_lock(%s, %s)", [DOOR, session.pid])
            with pytest.raises(LockUnavailable):
                self.backend.acquire(name)
        assert self.backend.inspect(name) is None
        assert session.connection.closed
        self.acquired(name)  # type: ignore[attr-defined]

    def test_a_late_renewal_does_not_touch_the_next_lease(self, name: str) -> None:
        lease = self.acquired(name)  # type: ignore[attr-defined]
        session = self.session_of(name, lease.lease_id)
        self.backend.release(lease)
        other = self.acquired(f"{name}.other")  # type: ignore[attr-defined]
        assert self.session_of(f"{name}.other", other.lease_id) is session
        assert session.stands(lease.lease_id, 60, timeout=5) is False
        assert self.backend.verify(other) is True
        assert self.backend.release(other) is True


def _params() -> dict[str, object]:
    from django.db import connections

    params = connections["default"].get_connection_params()
    params.pop("cursor_factory")
    return params
