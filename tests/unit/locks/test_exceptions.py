from __future__ import annotations

import pickle

import pytest
from django.core.exceptions import ImproperlyConfigured

from locks import (
    InvalidLockBackend,
    LeaseLost,
    LockError,
    LockNotAcquired,
    LockUnavailable,
    StaleToken,
)


@pytest.mark.parametrize("kind", [LockNotAcquired, LockUnavailable, LeaseLost, StaleToken])
def test_errors_have_one_base_and_survive_pickling(kind: type[LockError]) -> None:
    error = kind("what happened", name="a:b", alias="redis")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.name, copy.alias) == ("what happened", "a:b", "redis")
    assert isinstance(copy, LockError)


def test_a_wrong_setting_is_no_runtime_event() -> None:
    assert issubclass(InvalidLockBackend, ImproperlyConfigured)
    assert not issubclass(InvalidLockBackend, LockError)
