"""What all backends share: signals, prefixes, what is said when giving back fails."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from django.dispatch import Signal

from locks import Lease, lock_backends, signals
from locks.backends.base import BaseLockBackend, describe_holder, trust_margin
from locks.backends.database import DatabaseLeaseBackend

pytestmark = pytest.mark.django_db

SENT = {
    "acquired": signals.lease_acquired,
    "refused": signals.lease_refused,
    "released": signals.lease_released,
    "forced": signals.lease_force_released,
}


@pytest.fixture
def seen() -> Iterator[list[str]]:
    """What was sent, in order, by observers that fail each time."""
    events: list[str] = []
    receivers: list[tuple[Signal, object]] = []
    for word, signal in SENT.items():

        def observe(*, name: str, alias: str, word: str = word, **kwargs: object) -> None:
            events.append(word)
            raise RuntimeError("an observer never changes an outcome")

        signal.connect(observe, weak=False)
        receivers.append((signal, observe))
    yield events
    for signal, receiver in receivers:
        signal.disconnect(receiver)  # type: ignore[arg-type]


@pytest.mark.parametrize("alias", ["database", "redis"])
def test_observers_are_told_and_change_nothing(alias: str, seen: list[str]) -> None:
    backend, name = lock_backends[alias], f"signals.{uuid.uuid4().hex}"
    lease = backend.acquire(name)
    assert lease is not None
    assert backend.acquire(name) is None
    assert backend.release(lease) is True
    assert backend.release(lease) is False
    again = backend.acquire(name)
    assert again is not None
    assert backend.force_release(name, lease_id=again.lease_id) is True
    assert seen == ["acquired", "refused", "released", "acquired", "forced"]


def test_holder_tells_people_who_it_is() -> None:
    host, pid, thread = describe_holder().split(":")
    assert host
    assert pid.isdigit()
    assert thread == "MainThread"
    assert len(describe_holder()) <= 200


def test_the_margin_grows_with_the_ttl() -> None:
    assert 0 < trust_margin(1) < trust_margin(100) < 2


def test_a_prefix_keeps_names_apart_and_is_taken_off_again() -> None:
    backend = DatabaseLeaseBackend("x", {"BACKEND": "", "KEY_PREFIX": "site"})
    assert backend._stored("a:b") == "site:a:b"
    assert backend._told("site:a:b") == "a:b"
    assert DatabaseLeaseBackend("x", {"BACKEND": ""})._stored("a:b") == "a:b"


def test_withdrawing_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(BaseLockBackend):
        """Fails at every verb, with errors that are no lock errors at all."""

        def _release(self, name: str, lease_id: uuid.UUID, grant_no: int | None) -> bool:
            raise ZeroDivisionError

    Broken("broken", {"BACKEND": ""}).withdraw("a", lease_id=uuid.uuid4())
    assert "could not withdraw" in caplog.text


def test_only_a_quorum_needs_preparing() -> None:
    aliases = ("none", "database", "optimistic", "advisory", "row_lock", "redis")
    assert [lock_backends[alias].prepare() for alias in aliases] == [0.0] * 6


def test_a_backend_refuses_what_it_cannot_keep_before_it_asks() -> None:
    backend = lock_backends["redlock"]
    assert backend.clean_ttl(None) == backend.ttl
    for ttl in (backend.minimum_ttl / 2, backend.maximum_ttl * 2):
        with pytest.raises(ValueError, match="Invalid ttl"):
            backend.clean_ttl(ttl)


def test_a_lease_of_another_alias_is_just_a_lease() -> None:
    """Two aliases on one store share names only if they share a prefix as well."""
    first, second = lock_backends["database"], DatabaseLeaseBackend("second", {"BACKEND": "", "TTL": 5})
    name = f"shared.{uuid.uuid4().hex}"
    lease = first.acquire(name)
    assert isinstance(lease, Lease)
    assert second.acquire(name) is None
    first.release(lease)
