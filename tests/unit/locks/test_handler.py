from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from locks import InvalidLockBackend, lock_backends
from locks.backends.base import BaseLockBackend
from locks.backends.none import NoLockBackend

NONE = {"BACKEND": "locks.backends.none.NoLockBackend"}


def test_aliases_are_those_of_the_settings() -> None:
    assert lock_backends.aliases() == list(settings.LOCKS)
    assert list(lock_backends) == lock_backends.aliases()


def test_one_backend_per_thread() -> None:
    mine = lock_backends["none"]
    theirs: list[BaseLockBackend] = []
    thread = Thread(target=lambda: theirs.append(lock_backends["none"]))
    thread.start()
    thread.join()
    assert lock_backends["none"] is mine
    assert theirs[0] is not mine


def test_unknown_alias_names_the_known_ones() -> None:
    with (
        override_settings(LOCKS={"b": NONE, "a": NONE}),
        pytest.raises(InvalidLockBackend, match=r"No lock backend 'c'.*a, b"),
    ):
        lock_backends["c"]


def test_changed_settings_are_read_again() -> None:
    before = lock_backends["none"]
    with override_settings(LOCKS={"mine": {**NONE, "TTL": 3}}):
        assert lock_backends.aliases() == ["mine"]
        assert lock_backends["mine"].ttl == 3
    assert "mine" not in lock_backends.aliases()
    assert lock_backends["none"] is not before


def test_no_setting_is_no_backend() -> None:
    with override_settings():
        del settings.LOCKS
        lock_backends.reset()
        assert lock_backends.aliases() == []
        with pytest.raises(InvalidLockBackend, match="there: none"):
            lock_backends["default"]
    lock_backends.reset()
    assert lock_backends.aliases()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "BACKEND.*is missing"),
        ({"BACKEND": 3}, "BACKEND.*is missing"),
        ({"BACKEND": "locks.nothing.There"}, "cannot import 'locks.nothing.There'"),
        ({"BACKEND": "locks.base.Lease"}, "is no subclass of BaseLockBackend"),
        ({**NONE, "TIMEOUT": 1}, "unknown key 'TIMEOUT'"),
        ({**NONE, "TTL": None}, "TTL.*Invalid ttl None"),
        ({**NONE, "OPTIONS": {"x": 1}}, "unknown option 'x'"),
    ],
)
def test_bad_entries_are_refused(entry: dict[str, Any], message: str) -> None:
    with override_settings(LOCKS={"bad": entry}), pytest.raises(InvalidLockBackend, match=message):
        lock_backends["bad"]


def test_a_ttl_need_not_be_given() -> None:
    assert NoLockBackend("x", NONE).ttl == 10
