"""What the backends whose lease is a session of PostgreSQL have to keep beyond the contract."""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connections

from aegis_site.embedded import Services
from locks import Lease, LeaseLost, LockUnavailable, connection, exclusive
from locks.backends import session_registry, sessions
from locks.backends.sessions import Session
from locks.keepalive import keep_alive
from locks.testing import LockBackendContract, Outage, exit_status, fork_child, wait_until
from tests.contract.pooler import TransactionPooler
from tests.contract.wires import database_address, database_behind, wired_database, wired_row_backend

SESSIONS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'aegis %%-%%'
"""


def sessions_in_the_database() -> list[int]:
    """The processes of PostgreSQL that serve a session made for a lease."""
    return [pid for (pid,) in connection.execute(SESSIONS)]


@contextmanager
def other_session() -> Iterator[psycopg.Connection]:
    """A session of somebody else in the test database, in autocommit."""
    params = connections["default"].get_connection_params()
    params.pop("cursor_factory")
    with psycopg.connect(**params, autocommit=True) as other:
        yield other


class SessionBackendContract(LockBackendContract):
    """Subclasses set ``alias`` and the statement that takes the lock."""

    lock_sql: str

    def pid_of(self, name: str) -> int:
        """The process of PostgreSQL that holds ``name``."""
        shown = self.backend.inspect(name)
        assert shown is not None
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE starts_with(application_name, %(app)s)",
            {"app": f"aegis {shown.lease_id}"},
        )
        return int(rows[0][0])

    def end_session(self, name: str) -> None:
        """As an operator, or a restarted proxy, would."""
        pid = self.pid_of(name)
        connection.execute("SELECT pg_terminate_backend(%(pid)s)", {"pid": pid})
        wait_until(lambda: pid not in sessions_in_the_database(), what="the holder's session has gone")

    def expire(self, name: str) -> None:
        self.end_session(name)

    @contextmanager
    def store_down(self) -> Iterator[Outage]:
        with wired_database() as proxy:
            backend = wired_row_backend(self.alias)
            backend.inspect("warm-up")
            proxy.cut()
            yield Outage(backend, proxy.heal, proxy.cut)

    @contextmanager
    def another_process_holds(self, name: str, ttl: float = 60.0) -> Iterator[int]:
        """The pid of a child that has acquired ``name`` and goes on renewing it."""
        reading, writing = os.pipe()

        def hold() -> None:
            with exclusive(name, using=self.alias, ttl=ttl):
                os.write(writing, b"held")
                time.sleep(60)  # until it is killed

        child = fork_child(hold)
        try:
            assert os.read(reading, 4) == b"held"
            yield child
        finally:
            os.kill(child, signal.SIGKILL)
            exit_status(child)
            os.close(reading)
            os.close(writing)

    def acquired_at_last(self, name: str, within: float = 10.0) -> Lease:
        return wait_until(lambda: self.backend.acquire(name), within=within, what=f"{name} is free")

    def let_pass(self, seconds: float) -> None:
        """For bounds that the server keeps by its own clock."""
        end = self.backend.clock() + seconds
        wait_until(lambda: self.backend.clock() >= end, within=seconds + 10)

    # a session that ends

    def test_a_session_that_was_ended_is_a_lost_lease_and_the_name_is_free(self, name: str) -> None:
        lease = self.acquired(name)
        self.end_session(name)
        self.acquired(name)
        with pytest.raises(LeaseLost, match="no longer shows it as ours"):
            self.backend.renew(lease)
        assert self.backend.release(lease) is False
        assert self.backend.acquire(name) is None

    def test_keep_alive_tells_that_the_session_was_ended(self, name: str) -> None:
        told: list[LeaseLost] = []
        lease = self.acquired(name, ttl=60)
        with keep_alive(self.backend, lease, told.append) as kept:
            self.end_session(name)
            kept.next_renewal = self.backend.clock()
            wait_until(lambda: told, within=30, what="the loss was told at the next renewal")
            assert self.backend.clock() < lease.trusted_until, "not by the trust window"
            assert kept.lost

    def test_a_session_that_ended_after_the_last_renewal_is_seen_before_the_work_counts(self, name: str) -> None:
        with pytest.raises(LeaseLost), exclusive(name, using=self.alias, ttl=60):
            self.end_session(name)

    def test_a_new_session_is_never_made_for_an_old_lease(self, name: str) -> None:
        """Reconnecting unnoticed would go on without the lock."""
        lease = self.acquired(name)
        self.end_session(name)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                self.backend.renew(lease)
        assert self.backend.inspect(name) is None

    # processes

    def test_kill_9_frees_the_name_long_before_its_ttl_is_over(self, name: str) -> None:
        with self.another_process_holds(name) as child:
            assert self.backend.acquire(name) is None
            os.kill(child, signal.SIGKILL)
            self.acquired_at_last(name)

    def test_kill_9_frees_the_name_though_a_child_of_the_holder_lives_on(self, name: str) -> None:
        """A forked child inherits the socket; were it left open, the server would see the session alive."""
        reading, writing = os.pipe()

        def hold() -> None:
            with exclusive(name, using=self.alias, ttl=60):
                grandchild = fork_child(lambda: time.sleep(60))
                os.write(writing, b"%d\n" % grandchild)
                time.sleep(60)

        child = fork_child(hold)
        grandchild = int(os.read(reading, 20))
        assert self.backend.acquire(name) is None
        os.kill(child, signal.SIGKILL)
        exit_status(child)
        try:
            self.acquired_at_last(name)
        finally:
            os.kill(grandchild, signal.SIGKILL)

    def test_a_frozen_holder_keeps_its_name_and_nobody_gets_in(self, name: str) -> None:
        """Both directions: nobody overlaps with the frozen one, and nobody runs until it is thawed or killed."""
        with self.another_process_holds(name, ttl=1) as child:
            os.kill(child, signal.SIGSTOP)
            frozen_at = self.backend.clock()
            while self.backend.clock() < frozen_at + 3.0:
                assert self.backend.acquire(name) is None
            os.kill(child, signal.SIGKILL)
            self.acquired_at_last(name)

    def test_a_thawed_holder_does_not_trust_its_lease_any_more(self, name: str) -> None:
        reading, writing = os.pipe()

        def hold() -> None:
            with exclusive(name, using=self.alias, ttl=1) as kept:
                os.write(writing, b"1")
                wait_until(lambda: kept.lost, within=30)
                os.write(writing, b"2")

        child = fork_child(hold)
        assert os.read(reading, 1) == b"1"
        os.kill(child, signal.SIGSTOP)
        self.let_pass(1.2)
        os.kill(child, signal.SIGCONT)
        thawed_at = self.backend.clock()
        assert os.read(reading, 1) == b"2"
        assert self.backend.clock() < thawed_at + 5.0, "by the clock, and not by asking"
        assert exit_status(child) == 1  # with LeaseLost, at the end of the block

    def test_a_forked_child_neither_holds_nor_ends_its_parents_lease(self, name: str) -> None:
        lease = self.acquired(name)

        def meddle() -> None:
            with pytest.raises(LeaseLost):
                self.backend.renew(lease)
            assert self.backend.release(lease) is False
            assert self.backend.acquire(name) is None
            own = self.acquired(f"{name}.child")
            assert self.backend.release(own) is True

        assert exit_status(fork_child(meddle)) == 0
        self.backend.renew(lease)
        assert self.backend.acquire(name) is None
        assert self.backend.release(lease) is True

    # silence

    def test_a_half_open_connection_is_doubt_until_the_window_ends(self, name: str) -> None:
        """No answer loses nothing and prolongs nothing; the holder stops by its clock, and its end is told."""
        told: list[LeaseLost] = []
        with wired_database() as proxy:
            backend = wired_row_backend(self.alias)
            lease = self.acquired(name, backend, ttl=2)
            proxy.lose_all()
            with pytest.raises(LockUnavailable):
                backend.renew(lease)
            with keep_alive(backend, lease, told.append) as kept:
                wait_until(lambda: told, what="the loss was told")
                assert backend.clock() >= lease.trusted_until
                assert kept.renewals == 0
            assert self.backend.acquire(name) is None, "the server has heard of nothing: nobody gets in"

    def test_an_answer_that_comes_late_loses_nothing(self, name: str) -> None:
        with wired_database() as proxy:
            backend = wired_row_backend(self.alias)
            lease = self.acquired(name, backend, ttl=30)
            proxy.hold_answers()
            for _ in range(2):
                with pytest.raises(LockUnavailable):
                    backend.renew(Lease(**{**vars_of(lease), "ttl": 1.0}))
            proxy.heal()
            assert backend.renew(lease).trusted_until > lease.trusted_until
            assert backend.release(lease) is True

    def test_who_holds_since_when_is_shown_alike_after_a_renewal(self, name: str) -> None:
        """It is told by what the session sent last, which a renewal replaces."""
        lease = self.acquired(name)
        shown = self.backend.inspect(name)
        assert shown is not None and shown.acquired_at is not None and shown.holder == lease.holder
        for _ in range(2):
            self.backend.renew(lease)
            assert self.backend.inspect(name) == shown

    def test_a_grant_nobody_heard_of_is_taken_up_by_the_same_id(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lock is taken, the answer lost, and the server does not learn that its client has gone: busy for all
        others, and for the same id a leftover of its own, which is ended."""
        with wired_database() as proxy:
            backend, lease_id = wired_row_backend(self.alias), uuid.uuid4()
            backend.release(self.acquired(name, backend))  # probed and seeded
            execute_together, left = Session.execute_together, []

            def lose_the_answer(session: Session, sql: str, *params: Any) -> Any:
                if sql == self.lock_sql:
                    proxy.swallow_answers()
                return execute_together(session, sql, *params)

            with monkeypatch.context() as patch:
                patch.setattr(Session, "execute_together", lose_the_answer)
                patch.setattr(Session, "close", lambda session: left.append(session))
                patch.setattr(connection, "ANSWER_TIMEOUT", 0.5)
                with pytest.raises(LockUnavailable):
                    backend.acquire(name, lease_id=lease_id)
            proxy.heal()
            assert self.backend.acquire(name) is None
            again = backend.acquire(name, lease_id=lease_id)
            assert again is not None
            assert backend.release(again) is True
            left[0].close()

    # the server

    @pytest.mark.faults
    def test_a_restarted_server_ends_leases_and_heals(self, name: str, services: Services) -> None:
        lease = self.acquired(name)
        self.leave_database()
        services.postgres.kill()
        wait_until(lambda: self.loses(lease), what="the server's sessions have followed it")
        with pytest.raises(LockUnavailable):
            self.backend.acquire(name)
        services.postgres.start()
        wait_until(self.answers, what="the database answers")
        again = self.acquired(name)
        assert self.backend.release(again) is True

    @pytest.mark.faults
    def test_a_server_that_hangs_is_doubt_and_goes_on_where_it_was(self, name: str, services: Services) -> None:
        lease = self.acquired(name, ttl=6)
        services.postgres.pause()
        with pytest.raises(LockUnavailable):
            self.backend.renew(lease)
        services.postgres.resume()
        wait_until(lambda: self.renews(lease), what="the same session answers again")
        assert self.backend.release(lease) is True

    def loses(self, lease: Lease) -> bool:
        try:
            self.backend.renew(lease)
        except LeaseLost:
            return True
        return False

    def renews(self, lease: Lease) -> bool:
        try:
            self.backend.renew(lease)
        except LockUnavailable:
            return False
        return True

    def answers(self) -> bool:
        try:
            self.backend.inspect("x")
        except LockUnavailable:
            return False
        return True

    @staticmethod
    def leave_database() -> None:
        connection.close_all()
        connections.close_all()

    # poolers

    @pytest.mark.parametrize("honest", [False, True], ids=["own-number", "servers-number"])
    def test_transaction_pooling_is_refused_with_the_remedy(self, name: str, honest: bool) -> None:
        with TransactionPooler(database_address(), honest=honest) as pooler, database_behind(pooler.port):
            backend = wired_row_backend(self.alias)
            for _ in range(2):
                with pytest.raises(LockUnavailable, match=r"pooled on the way.*set LOCATION to a database alias"):
                    backend.acquire(name)
        assert pooler.handed_out > 0
        self.acquired(name)

    # many

    def test_the_number_of_connections_stays_flat(self, name: str) -> None:
        before = len(sessions_in_the_database())
        for number in range(200):
            lease = self.acquired(name)
            if number % 2:
                assert self.backend.acquire(name) is None
            assert self.backend.release(lease) is True
        wait_until(lambda: len(sessions_in_the_database()) <= before, what="all sessions are closed")
        assert self.backend.inspect(name) is None

    def test_each_lease_has_a_session_of_its_own(self, name: str) -> None:
        names = [f"{name}.{number}" for number in range(5)]
        leases = [self.acquired(one) for one in names]
        assert len({self.pid_of(one) for one in names}) == 5
        count = session_registry.held_sessions()
        assert [self.backend.release(lease) for lease in leases] == [True] * 5
        assert session_registry.held_sessions() == count - 5

    def test_force_release_ends_that_session_and_no_other(self, name: str) -> None:
        other = self.acquired(f"{name}.other")
        with self.another_process_holds(name):
            shown = self.backend.inspect(name)
            assert shown is not None
            assert shown.lease_id is not None
            assert self.backend.force_release(f"{name}.other", lease_id=shown.lease_id) is False
            assert self.backend.force_release(name, lease_id=shown.lease_id) is True
            lease = self.acquired(name)
            assert self.backend.force_release(name, lease_id=shown.lease_id) is False
            assert self.backend.release(lease) is True
        self.backend.renew(other)
        assert self.backend.release(other) is True

    def test_key_prefixes_share_a_database_and_nothing_else(self, name: str) -> None:
        backend = type(self.backend)(self.alias, {**self.backend.params, "KEY_PREFIX": "other"})
        mine = self.acquired(name)
        lease = self.acquired(name, backend)
        shown = backend.inspect(name)
        assert shown is not None
        assert (shown.name, shown.lease_id) == (name, lease.lease_id)
        assert [info.name for info in backend.list(name)] == [name]
        assert backend.release(lease) is True
        assert self.backend.release(mine) is True

    def test_a_session_of_nobody_is_shown_as_held_by_it(self, name: str) -> None:
        """Unknown is not free: whoever took the lock by hand is shown, without a lease id."""
        self.backend.release(self.acquired(name))
        with self.locked_by_hand(name):
            shown = self.backend.inspect(name)
            assert shown is not None
            assert shown.lease_id is None
            assert "of the database" in shown.holder
            assert self.backend.acquire(name) is None
        assert self.backend.inspect(name) is None

    @contextmanager
    def locked_by_hand(self, name: str) -> Iterator[None]:
        raise NotImplementedError
        yield

    def test_the_server_bears_with_silence_for_as_long_as_the_holder_trusts(self) -> None:
        for ttl in (1.0, 6.0, 10.5, 3600.0):
            wanted = {key: int(value) for key, value in sessions.patience(ttl).items()}
            assert wanted["silence"] >= ttl * 1000
            assert wanted["idle"] + wanted["interval"] * wanted["count"] >= ttl
            assert wanted["idle"] <= max(1.0, ttl)
            longest = max(
                wanted["silence"] / 1000 + wanted["interval"], wanted["idle"] + wanted["interval"] * wanted["count"]
            )
            assert longest <= sessions.patience_ends(ttl)

    def test_nothing_is_logged_by_a_healthy_lease(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING), exclusive(name, using=self.alias):
            pass
        assert caplog.records == []


def vars_of(lease: Lease) -> dict[str, object]:
    return {field: getattr(lease, field) for field in lease.__dataclass_fields__}
