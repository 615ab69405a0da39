from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

import pytest
from redis.exceptions import RedisError

from locks import LockUnavailable, lock_backends
from locks.backends.clients import counter_key, lock_key
from locks.backends.redis import RedisLockBackend
from locks.testing import Outage, wait_until
from tests.contract.sharing import SharedRedis
from tests.contract.wires import WIRED, wired_redis


@pytest.mark.django_db
class TestRedis(SharedRedis):
    alias = "redis"

    @property
    def backend(self) -> RedisLockBackend:
        return cast("RedisLockBackend", lock_backends[self.alias])

    def expire(self, name: str) -> None:
        self.backend.client.delete(lock_key(self.backend.prefix, name))

    @contextmanager
    def store_down(self) -> Iterator[Outage]:
        with wired_redis(self.alias) as (backend, (proxy,)):
            backend.inspect("warm-up")
            proxy.cut()
            yield Outage(backend, proxy.heal)

    def test_grant_numbers_go_on_after_the_data_were_lost(self, name: str) -> None:
        before = self.acquired(name)
        self.backend.client.delete(lock_key(self.backend.prefix, name), counter_key(self.backend.prefix, name))
        assert (self.acquired(name).grant_no or 0) > (before.grant_no or 0)

    def test_grant_numbers_go_on_when_the_clock_is_behind(self, name: str) -> None:
        ahead = 2**52
        self.backend.client.set(counter_key(self.backend.prefix, name), ahead)
        assert self.acquired(name).grant_no == ahead + 1

    def test_both_keys_of_a_name_are_in_one_slot(self, name: str) -> None:
        tag = f"{{{name}}}"
        assert tag in lock_key("p", name)
        assert tag in counter_key("p", name)

    def test_the_lock_key_always_expires(self, name: str) -> None:
        self.acquired(name)
        assert 0 < self.backend.client.pttl(lock_key(self.backend.prefix, name)) <= self.backend.ttl * 1000

    def test_server_that_knows_no_script_is_told_it(self, name: str) -> None:
        self.backend.client.script_flush()
        assert self.backend.release(self.acquired(name)) is True

    def test_wrong_kind_of_key_is_unavailable_never_none(self, name: str) -> None:
        key = lock_key(self.backend.prefix, name)
        self.backend.client.lpush(key, "somebody else's")
        with pytest.raises(LockUnavailable) as caught:
            self.backend.acquire(name)
        assert isinstance(caught.value.__cause__, RedisError)
        self.backend.client.delete(key)

    @pytest.mark.parametrize(
        "value",
        [b"stop", b"\xff\xfe", b"a:b:c:d", f"{uuid.UUID(int=1)}:x:1:me", f"{uuid.UUID(int=1)}:1:{'9' * 99}:me"],
    )
    def test_a_value_that_is_no_lease_holds_the_name_and_hides_no_other(self, name: str, value: bytes | str) -> None:
        other = self.acquired(f"{name}.other")
        self.backend.client.set(lock_key(self.backend.prefix, name), value)
        try:
            info = self.backend.inspect(name)
            assert info is not None and info.lease_id is None and "wrote no lease" in info.holder
            listed = {one.name: one.lease_id for one in self.backend.list(name)}
            assert listed == {name: None, other.name: other.lease_id}
            assert self.backend.acquire(name) is None
        finally:
            self.expire(name)

    def test_a_key_of_another_kind_is_shown_as_held_and_hides_no_other(self, name: str) -> None:
        other = self.acquired(f"{name}.other")
        self.backend.client.lpush(lock_key(self.backend.prefix, name), "stop")
        try:
            listed = {one.name: one.lease_id for one in self.backend.list(name)}
            assert listed == {name: None, other.name: other.lease_id}
        finally:
            self.expire(name)

    def test_a_key_that_names_no_lock_is_left_out_of_the_list(self, name: str) -> None:
        lease = self.acquired(name)
        keys = [f"{self.backend.prefix}:{{Nightly Report}}:lock", self.backend.prefix.encode() + b":{\xff}:lock"]
        for key in keys:
            self.backend.client.set(key, "stop")
        try:
            assert lease.lease_id in {one.lease_id for one in self.backend.list()}
        finally:
            self.backend.client.delete(*keys)

    def test_errors_do_not_tell_the_password(self, name: str) -> None:
        with wired_redis(self.alias) as (backend, (proxy,)):
            secret = cast("RedisLockBackend", backend).url.partition("@")[0].rpartition(":")[2]
            proxy.cut()
            with pytest.raises(LockUnavailable) as caught:
                backend.acquire(name)
            assert secret not in f"{caught.value} {caught.value.__cause__}" or not secret.isalnum()

    def test_an_answer_that_comes_late_is_never_read_by_a_later_question(self, name: str) -> None:
        """The answer to one question is held back until another one has been asked."""
        with wired_redis(self.alias) as (wired, (proxy,)):
            backend = type(wired)(WIRED, {**wired.params, "OPTIONS": {"SOCKET_TIMEOUT": 1}})
            lease = self.acquired(name, backend)
            proxy.hold_answers()
            with pytest.raises(LockUnavailable):
                backend.renew(lease)
            before = proxy.requests
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(backend.inspect, name)
                wait_until(lambda: proxy.requests > before, what="it is asked again")
                proxy.heal()
                shown = asked.result()
            assert shown is not None
            assert shown.lease_id == lease.lease_id
            assert backend.inspect(f"{name}.other") is None

    def test_swallowed_answer_is_unavailable_and_the_same_id_gets_the_grant(self, name: str) -> None:
        with wired_redis(self.alias) as (backend, (proxy,)):
            backend.release(self.acquired(f"{name}.warm-up", backend))
            lease_id = uuid.uuid4()
            proxy.swallow_answers()
            with pytest.raises(LockUnavailable):
                backend.acquire(name, lease_id=lease_id)
            granted = wait_until(lambda: self.backend.inspect(name), what="the grant nobody heard of")
            assert granted.lease_id == lease_id
            proxy.heal()
            again = backend.acquire(name, lease_id=lease_id)
            assert again is not None
            assert again.grant_no == granted.grant_no
