"""``redis``: one key with an expiry on one server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

import redis
from redis.exceptions import RedisError

from ..base import Lease, LeaseInfo, LeaseInfos, validate_name
from ..examination import of_redis
from ..examination.redis_server import PATIENCE
from ..exceptions import LockUnavailable
from ..findings import Findings
from . import scripts
from .base import BaseLockBackend, Grant
from .clients import (
    DEFAULT_PREFIX,
    RedisParams,
    client_for,
    counter_key,
    disconnect,
    info_from,
    line_to,
    lock_key,
    names_in,
    run,
    server_of,
)
from .params import ParamsValidator, positive_seconds


class RedisLockParams(RedisParams):
    options = {"SOCKET_TIMEOUT": positive_seconds}


class RedisLockBackend(BaseLockBackend):
    """``SET NX PX`` with a random value, compared in Lua to renew and release; grants are numbered in the
    same script.

    Efficiency grade: covers overlap while there is one master that loses no data, does not evict
    (``noeviction``), does not fail over and whose clock does not step. Keep it apart from the cache.
    ``OPTIONS``: ``SOCKET_TIMEOUT``, seconds to wait for an answer (a tenth of the ttl, between 0.05 and 2,
    if it is not given).
    """

    grant_numbers: ClassVar[bool] = True
    survives_store_restart: ClassVar[bool] = False  # only as far as its persistence goes: do not count on it
    params_validator: ClassVar[type[ParamsValidator]] = RedisLockParams

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.url: str = params["LOCATION"]
        self.prefix = self.key_prefix or DEFAULT_PREFIX
        self.timeout = float(self.options.get("SOCKET_TIMEOUT", min(2.0, max(0.05, self.ttl / 10))))
        self.servers = (server_of(self.url),)
        self.longest_exchange = 2 * self.timeout  # to connect, and to be answered

    @property
    def client(self) -> redis.Redis:
        """The client of this process."""
        return client_for(self.url, self.timeout)

    def place(self) -> Sequence[str]:
        return [*self.servers, str(self.client.connection_pool.connection_kwargs.get("db", 0))]

    def inspect(self, name: str) -> LeaseInfo | None:
        shown = self._run("inspect", validate_name(name), scripts.SHOW, [lock_key(self.prefix, name)])
        return info_from(name, self.alias, *shown, numbered=True) if shown else None

    def list(self, prefix: str = "") -> LeaseInfos:
        try:
            keys = list(self.client.scan_iter(f"{self.prefix}:{{{prefix}*}}:lock"))
        except RedisError as error:
            raise self._doubt("list", prefix, error) from error
        found = (self.inspect(name) for name in names_in(keys))
        return [info for info in found if info is not None]

    def examine(self) -> Findings:
        return of_redis.examine(self.alias, client_for(self.url, PATIENCE), server_of(self.url), self.prefix)

    def close(self) -> None:
        disconnect(self.url, self.timeout)

    def _acquire(self, name: str, ttl: float, lease_id: UUID, holder: str) -> Grant | None:
        keys = [lock_key(self.prefix, name), counter_key(self.prefix, name)]
        granted, number = self._run("acquire", name, scripts.ACQUIRE, keys, [str(lease_id), _ms(ttl), holder])
        return Grant(int(number)) if granted else None

    def _renew(self, lease: Lease, ttl: float) -> bool:
        keys = [lock_key(self.prefix, lease.name)]
        return bool(self._run("renew", lease.name, scripts.RENEW, keys, [str(lease.lease_id), _ms(ttl)]))

    def _release(self, name: str, lease_id: UUID, grant_no: int | None) -> bool:
        return bool(self._run("release", name, scripts.RELEASE, [lock_key(self.prefix, name)], [str(lease_id)]))

    def _run(
        self, action: str, name: str, script: scripts.Script, keys: Sequence[str], args: Sequence[Any] = ()
    ) -> Any:
        try:
            return run(line_to(self.url, self.timeout), script, keys, args)
        except RedisError as error:
            raise self._doubt(action, name, error) from error

    def _doubt(self, action: str, name: str, error: RedisError) -> LockUnavailable:
        return LockUnavailable(
            f"Lock {name!r} ({self.alias}): Redis at {server_of(self.url)} could not {action}:"
            f" {type(error).__name__}: {error}.",
            name=name,
            alias=self.alias,
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
