"""``fence()`` in plain code, over every backend: a former holder writes nothing, and nobody needs an execution."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections

from locks import LeaseLost, StaleToken, exclusive, fence, fencing, lock_backends
from locks import connection as own_connection
from locks.keepalive import Kept
from tests.support import wait_until
from tests.support.loss import EXCLUSIVE, in_a_thread, lock_waiters, take_lease_away
from tests.support.quorum import await_votes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=EXCLUSIVE)
def alias(request: pytest.FixtureRequest) -> str:
    if request.param == "redlock":
        await_votes()
    return str(request.param)


@pytest.fixture
def name() -> str:
    return f"fence.{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def notes() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE fence_notes (said text)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE fence_notes")


def note(said: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO fence_notes VALUES (%s)", [said])


def noted() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT said FROM fence_notes")
        return [said for (said,) in cursor.fetchall()]


def as_later_holder(name: str, alias: str, said: str) -> int:
    """Another worker holds the name after us and writes."""
    take_lease_away(alias, name)

    def work() -> int:
        with exclusive(name, using=alias, wait=20) as held, fence(held) as token:
            note(said)
        return token

    return int(in_a_thread(work))


def test_each_holder_has_a_larger_token_and_keeps_its_own(name: str, alias: str) -> None:
    tokens = []
    for _ in range(3):
        with exclusive(name, using=alias) as held:
            with fence(held) as first:
                note("one")
            with fence(held) as again:
                note("two")
        assert first == again == fencing.current(name)
        tokens.append(first)
    assert tokens == sorted(set(tokens)) and len(noted()) == 6


def test_a_former_holder_writes_nothing(name: str, alias: str) -> None:
    def overtaken() -> None:
        with exclusive(name, using=alias) as held:
            with fence(held):
                note("mine")
            as_later_holder(name, alias, "later")
            with fence(held):
                note("stale")

    with pytest.raises((StaleToken, LeaseLost)):
        overtaken()
    assert noted() == ["mine", "later"]


def test_a_former_holder_that_never_raised_the_fence_does_not_interleave(name: str, alias: str) -> None:
    """The number of its grant refuses it; without numbers it takes the fence over, and the later one is stale."""

    def unaware(held: Kept) -> None:
        held.check = lambda: None  # type: ignore[method-assign]  # it froze between the look and the statement
        as_later_holder(name, alias, "later")
        with fence(held):
            note("stale")

    if lock_backends[alias].grant_numbers:
        with pytest.raises(StaleToken, match="later grant"), exclusive(name, using=alias) as held:
            unaware(held)
        assert noted() == ["later"]
    else:
        with suppress(LeaseLost), exclusive(name, using=alias) as held:
            unaware(held)
        assert noted() == ["later", "stale"]  # one after the other: the later one's next fence would be stale


def test_a_holder_whose_lease_is_over_raises_nothing(name: str, alias: str) -> None:
    def lost() -> None:
        with exclusive(name, using=alias) as held:
            held._lose(LeaseLost("noticed", name=name))
            with fence(held):
                note("lost")

    with pytest.raises(LeaseLost):
        lost()
    assert noted() == [] and not fencing.current(name)


def test_a_later_holder_waits_for_an_open_fence(name: str, alias: str) -> None:
    seen: list[list[str]] = []

    def later() -> None:
        with exclusive(name, using=alias, wait=20) as held, fence(held):
            seen.append(noted())

    thread = threading.Thread(target=in_a_thread, args=(lambda: later() or True,))
    with suppress(LeaseLost), exclusive(name, using=alias) as held:
        with fence(held):
            note("first")
            take_lease_away(alias, name)
            thread.start()
            wait_until(lambda: lock_waiters() > 0, message="the later holder waits to raise the fence")
            assert not seen
        thread.join(timeout=30)
    assert seen == [["first"]]


def test_a_backend_that_excludes_nobody_has_no_fence(name: str) -> None:
    with (
        exclusive(name, using="none") as held,
        pytest.raises(ImproperlyConfigured, match="keeps nobody apart"),
        fence(held),
    ):
        pytest.fail("entered")


def test_a_lost_answer_to_the_raise_is_asked_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one finds the fence raised by its own lease id."""
    real, lost = own_connection.execute, []

    def forgetful(sql: str, params: object = None, **more: object) -> object:
        answer = real(sql, params, **more)  # type: ignore[arg-type]
        if sql is fencing.RAISE and answer and not lost:
            lost.append(answer[0][0])
            raise own_connection.NoAnswer("lost on the way")
        return answer

    monkeypatch.setattr(own_connection, "execute", forgetful)
    with exclusive(name, using="database") as held, fence(held) as token:
        note("mine")
    assert lost == [token] and noted() == ["mine"]
    connections.close_all()
