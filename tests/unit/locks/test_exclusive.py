from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from threading import Event, Thread

import pytest
from django.conf import settings
from django.test import override_settings

from locks import LeaseLost, LockNotAcquired, LockUnavailable, exclusive, keepalive, lock_backends, signals
from locks.keepalive import Kept
from locks.testing import answer_late, wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def name() -> str:
    return f"exclusive.{uuid.uuid4().hex}"


@pytest.fixture
def late_alias() -> Iterator[str]:
    """An alias of a redis backend whose answers to ``acquire`` come after the trust window."""
    with override_settings(LOCKS={"late": settings.LOCKS["redis"], "redis": settings.LOCKS["redis"]}):
        answer_late(lock_backends["late"], "_acquire", 1000)
        yield "late"


@pytest.fixture(params=["database", "redis"])
def alias(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_holds_the_name_for_the_block_and_gives_it_back(name: str, alias: str) -> None:
    with exclusive(name, using=alias, ttl=5) as held:
        held.check()
        assert (held.lease.name, held.lease.alias, held.lease.ttl) == (name, alias, 5.0)
        assert held.grant_no == held.lease.grant_no
        assert held.grant_no
        assert lock_backends[alias].acquire(name) is None
    assert lock_backends[alias].inspect(name) is None


@pytest.mark.parametrize("alias", ["database", "redis", "advisory", "row_lock"])
def test_an_interrupt_between_the_grant_and_the_block_leaves_nothing_held(name: str, alias: str) -> None:
    """A lease that is a session's would otherwise be held for as long as the process lives."""

    class Interrupt(BaseException):
        """Like those of time limits and signals, at any line."""

    def strike(**kwargs: object) -> None:
        raise Interrupt

    signals.lease_acquired.connect(strike)
    try:
        with pytest.raises(Interrupt), exclusive(name, using=alias):
            pytest.fail("entered")
    finally:
        signals.lease_acquired.disconnect(strike)
    assert lock_backends[alias].inspect(name) is None


def test_an_interrupt_at_the_last_line_before_the_block_ends_the_keep_alive_too(name: str, alias: str) -> None:
    """Else its renewals go on, and ``on_lost`` is called for a block that nobody is in."""
    struck = []

    class Struck(exclusive):
        def __setattr__(self, field: str, value: object) -> None:
            super().__setattr__(field, value)
            if field == "_stack" and value is not None and not struck:
                struck.append(value)
                raise KeyboardInterrupt

    held, before = Struck(name, using=alias), set(keepalive._process.watcher.items)
    with pytest.raises(KeyboardInterrupt), held:
        pytest.fail("entered")
    assert set(keepalive._process.watcher.items) <= before
    assert lock_backends[alias].inspect(name) is None
    with held as again:
        again.check()


def test_held_by_another_is_not_acquired(name: str, alias: str) -> None:
    with exclusive(name, using=alias), pytest.raises(LockNotAcquired) as caught, exclusive(name, using=alias):
        pytest.fail("entered twice")
    assert (caught.value.name, caught.value.alias) == (name, alias)


def test_waits_as_long_as_it_was_told(name: str, alias: str) -> None:
    entered, leave = Event(), Event()

    def hold() -> None:
        with exclusive(name, using=alias):
            entered.set()
            leave.wait(30)

    thread = Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    with pytest.raises(LockNotAcquired), exclusive(name, using=alias, wait=0.1):
        pytest.fail("entered twice")
    leave.set()
    with exclusive(name, using=alias, wait=30) as held:
        held.check()
    thread.join()


def test_decorated_function_is_tried_anew_on_each_call(name: str, alias: str) -> None:
    calls: list[int] = []

    @exclusive(name, using=alias)
    def body(number: int, *, inside: bool = False) -> int:
        """What it does."""
        calls.append(number)
        if inside:
            with pytest.raises(LockNotAcquired):
                body(99)
        return number * 2

    assert [body(1), body(2, inside=True), body(3)] == [2, 4, 6]
    assert calls == [1, 2, 3]
    assert (body.__name__, body.__doc__) == ("body", "What it does.")


def test_an_error_of_the_block_is_never_replaced(name: str, alias: str) -> None:
    def fail() -> None:
        with exclusive(name, using=alias) as held:
            lock_backends[alias].force_release(name, lease_id=held.lease.lease_id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lock_backends[alias].acquire(name) is not None


def test_a_block_that_outlived_its_lease_does_not_end_well(name: str, alias: str) -> None:
    def outlive() -> None:
        with exclusive(name, using=alias, ttl=1) as held:
            lock_backends[alias].force_release(name, lease_id=held.lease.lease_id)
            wait_until(lambda: held.lost)

    with pytest.raises(LeaseLost):
        outlive()


def test_on_lost_is_told(name: str, alias: str) -> None:
    told: list[LeaseLost] = []

    def outlive() -> None:
        with exclusive(name, using=alias, ttl=1, on_lost=told.append) as held:
            lock_backends[alias].force_release(name, lease_id=held.lease.lease_id)
            wait_until(lambda: told)

    with pytest.raises(LeaseLost):
        outlive()
    assert len(told) == 1


def test_doubt_is_raised_and_what_may_have_been_granted_is_given_back(name: str, late_alias: str) -> None:
    with pytest.raises(LockUnavailable), exclusive(name, using=late_alias, wait=30):
        pytest.fail("entered on doubt")
    assert lock_backends["redis"].inspect(name) is None


def test_trouble_with_the_release_is_logged_not_raised(
    name: str, alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    with exclusive(name, using=alias, ttl=5) as held:
        lock_backends[alias].force_release(name, lease_id=held.lease.lease_id)
    assert any("not ours any more" in record.message for record in caplog.records)


def test_one_object_is_not_entered_twice_at_once(name: str, alias: str) -> None:
    lock = exclusive(name, using=alias)
    with lock, pytest.raises(RuntimeError, match="entered already"), lock:
        pytest.fail("entered twice")
    with lock as held:
        assert isinstance(held, Kept)


def test_functions_that_return_before_their_work_is_done_are_refused(name: str) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    for function in (coroutine, generator, stream):
        with pytest.raises(TypeError, match="before its work is done"):
            exclusive(name)(function)


def test_a_bad_name_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="Invalid lock name"):
        exclusive("Bad Name")
