from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from locks import LockUnavailable, bounded, connection, lock_backends
from locks.backends.advisory import ACQUIRE, key_of
from locks.testing import count_lost_updates
from tests.contract.resting import RestingSessions
from tests.contract.sessions import SessionBackendContract, other_session

REGISTERED = "SELECT name, key FROM aegis_locks_advisory WHERE name = %(name)s"
KEY_OF = "import sys; from locks.backends.advisory import key_of; print(key_of(sys.argv[1]))"


@pytest.mark.django_db
class TestAdvisory(RestingSessions, SessionBackendContract):
    alias = "advisory"
    lock_sql = ACQUIRE

    @contextmanager
    def locked_by_hand(self, name: str) -> Iterator[None]:
        with other_session() as other:
            other.execute("SELECT pg_advisory_lock(%s)", [key_of(name)])
            yield
            other.execute("SELECT pg_advisory_unlock(%s)", [key_of(name)])

    # the key

    def test_the_key_is_the_same_in_every_process(self) -> None:
        told = {
            subprocess.run(
                [sys.executable, "-c", KEY_OF, "nightly"],
                env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
            ).stdout.strip()
            for seed in ("1", "2")
        }  # fmt: skip
        assert told == {str(key_of("nightly"))} == {"-1065022374768610715"}

    def test_the_key_is_a_signed_64_bit_number_and_names_do_not_share_one(self) -> None:
        keys = {key_of(f"schedule.{number}") for number in range(200_000)}
        assert len(keys) == 200_000
        assert min(keys) < -(2**62)
        assert 2**62 < max(keys) < 2**63
        assert min(keys) >= -(2**63)

    def test_a_name_is_registered_beside_its_key(self, name: str) -> None:
        assert connection.execute(REGISTERED, {"name": name}) == []
        self.acquired(name)
        assert connection.execute(REGISTERED, {"name": name}) == [(name, key_of(name))]

    @pytest.mark.parametrize("first_is_held", [True, False])
    def test_a_forged_collision_is_refused_and_never_shared(self, name: str, first_is_held: bool) -> None:
        """Another name stands in the registry for the key of this one: held or free, it is an error, not "busy"."""
        forged = {"name": f"{name}.first", "key": key_of(name)}
        connection.execute("INSERT INTO aegis_locks_advisory (name, key) VALUES (%(name)s, %(key)s)", forged)
        with other_session() as other:
            if first_is_held:
                other.execute("SELECT pg_advisory_lock(%s)", [key_of(name)])
            with pytest.raises(LockUnavailable, match=rf"registered is '{name}.first' with key .*rename one"):
                self.backend.acquire(name)
        connection.execute("DELETE FROM aegis_locks_advisory WHERE name = %(name)s", forged)
        self.acquired(name)

    def test_a_name_registered_with_another_key_is_refused(self, name: str) -> None:
        connection.execute("INSERT INTO aegis_locks_advisory (name, key) VALUES (%(name)s, 1)", {"name": name})
        with pytest.raises(LockUnavailable, match="with key 1"):
            self.backend.acquire(name)
        connection.execute("DELETE FROM aegis_locks_advisory WHERE name = %(name)s", {"name": name})

    def test_the_registry_refuses_two_names_of_one_key(self, name: str) -> None:
        self.acquired(name)
        with pytest.raises(psycopg.errors.UniqueViolation, match="aegis_locks_advisory_key_unique"):
            connection.execute(
                "INSERT INTO aegis_locks_advisory (name, key) VALUES (%(name)s, %(key)s)",
                {"name": f"{name}.2", "key": key_of(name)},
            )

    # the number

    def test_numbers_grow_in_the_order_of_the_grants(self, name: str) -> None:
        numbers: list[int] = []

        class Noting:
            def __init__(self) -> None:
                self.backend = lock_backends["advisory"]

            def acquire(self, name: str):  # type: ignore[no-untyped-def]
                lease = self.backend.acquire(name)
                if lease is not None:
                    numbers.append(lease.grant_no or 0)
                return lease

            def release(self, lease):  # type: ignore[no-untyped-def]
                return self.backend.release(lease)

        result = count_lost_updates(Noting, name, threads=8, entries_each=6)  # type: ignore[arg-type]
        assert (result.errors, result.violations) == ([], 0)
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 48

    def test_a_number_that_a_crash_could_give_again_is_waited_for(self, name: str) -> None:
        """Somebody drew numbers for which the sequence wrote down more than one, and the disk has not heard of it."""
        self.backend.release(self.acquired(name))
        for _ in range(5):  # the server's own writer may come in between, but hardly each time
            with other_session() as other, other.transaction():
                other.execute("SELECT nextval('aegis_locks_token') FROM generate_series(1, 40)")
                (written,) = other.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or ()
                self.backend.release(self.acquired(name))
                (safe,) = other.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [written]).fetchone() or ()
                assert safe

    def test_a_grant_writes_nothing_where_all_is_on_disk(self, name: str) -> None:
        """But one number of 32; and whatever the server writes of its own accord, which is not each time."""
        self.backend.release(self.acquired(name))
        written = "SELECT pg_current_wal_insert_lsn()"
        silent = 0
        for _ in range(10):
            before = connection.execute(written)
            self.backend.release(self.acquired(name))
            silent += connection.execute(written) == before
        assert silent

    def test_a_session_that_may_only_read_says_nothing_of_who_holds(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A standby has locks of its own: one that is held there is not the name's."""
        self.backend.release(self.acquired(name))
        connection.close_all()
        with monkeypatch.context() as patch, self.locked_by_hand(name):
            patch.setitem(bounded.SESSION, "default_transaction_read_only", "on")
            with pytest.raises(LockUnavailable, match="may only read"):
                self.backend.acquire(name)
        connection.close_all()  # what was made meanwhile may only read

    def test_a_name_whose_row_was_deleted_goes_on_with_larger_numbers(self, name: str) -> None:
        before = self.acquired(name)
        self.backend.release(before)
        connection.execute("DELETE FROM aegis_locks_advisory WHERE name = %(name)s", {"name": name})
        assert (self.acquired(name).grant_no or 0) > (before.grant_no or 0)

    def test_a_deleted_row_frees_no_lock(self, name: str) -> None:
        lease = self.acquired(name)
        connection.execute("DELETE FROM aegis_locks_advisory WHERE name = %(name)s", {"name": name})
        shown = self.backend.inspect(name)
        assert shown is not None
        assert shown.lease_id == lease.lease_id
        assert self.backend.acquire(name) is None

    def test_a_name_without_a_row_is_seeded_once_by_many(self, name: str) -> None:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: lock_backends[self.alias].acquire(name), range(16)))
        assert sum(answer is not None for answer in answers) == 1
        assert len(connection.execute(REGISTERED, {"name": name})) == 1

    def test_an_error_in_the_middle_leaves_nothing_locked(self, name: str) -> None:
        """The lock is taken and no number can be drawn: the session is closed, and the lock with it."""
        self.backend.release(self.acquired(name))
        with other_session() as other:
            with other.transaction(force_rollback=True):
                other.execute("ALTER SEQUENCE aegis_locks_token CACHE 1")
                with pytest.raises(LockUnavailable):
                    self.backend.acquire(name)
            assert self.backend.inspect(name) is None
        self.acquired(name)
